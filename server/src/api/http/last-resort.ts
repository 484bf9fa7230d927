/**
 * Handles failures that nothing caught: logs and counts them, answers the request that they belong to, and
 * lets the server run on. Without this Node ends the process, and with it the control plane of all projects.
 */
import { currentRequest } from './current-request.ts';

export interface LastResortOptions {
  onUnhandled(error: unknown): void;
  /** Called before the process ends itself. */
  onFatal(error: unknown): void;
}

/** Failures after which the process is not reliable any more. No request can cause them. */
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
      // A failure of the report itself is ignored.
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
