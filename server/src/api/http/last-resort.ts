/**
 * What becomes of a failure that nothing caught: it is told and counted, the request that it belongs to is
 * answered, and the server goes on. Without this Node ends the process, and with it the control plane of
 * everybody.
 */
import { currentRequest } from './current-request.ts';

export interface LastResortOptions {
  onUnhandled(error: unknown): void;
  /** Told before the process ends itself. */
  onFatal(error: unknown): void;
}

/**
 * Failures of the process itself, after which nothing that it does can be relied upon. Nothing that arrives
 * can bring them about.
 */
const FATAL = new Set(['ERR_INTERNAL_ASSERTION', 'ERR_MEMORY_ALLOCATION_FAILED']);

export function lastResort({ onUnhandled, onFatal }: LastResortOptions): Disposable {
  function caught(error: unknown): void {
    if (isFatal(error)) {
      onFatal(error);
      process.exit(1);
    }
    try {
      onUnhandled(error);
      currentRequest()?.fail(error);
    } catch {
      // Whatever fails in telling of a failure is not told.
    }
  }
  process.on('uncaughtException', caught);
  process.on('unhandledRejection', caught);
  return {
    [Symbol.dispose]() {
      process.off('uncaughtException', caught);
      process.off('unhandledRejection', caught);
    },
  };
}

function isFatal(error: unknown): boolean {
  return FATAL.has(String((error as NodeJS.ErrnoException | undefined)?.code));
}
