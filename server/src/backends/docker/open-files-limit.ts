import { isCayError, type SandboxSpec } from '@cay/sdk/protocol';

/** The limit of open files, which an engine may not be allowed to raise. */
export interface OpenFilesLimit {
  /** False if the engine has refused such a limit before. */
  isSet(spec: SandboxSpec): boolean;
  /** Starts a container with the limit, or without it if the engine refuses it. */
  attempt(spec: SandboxSpec, attempt: (setOpenFiles: boolean) => Promise<void>): Promise<void>;
}

export function openFilesLimit(): OpenFilesLimit {
  /** The lowest limit that the engine may not set. */
  let refused = Number.POSITIVE_INFINITY;
  const isSet = ({ limits }: SandboxSpec) => limits.openFiles < refused;

  return {
    isSet,

    /**
     * An engine says only in words of its runtime that it may not raise the limit. Whether that was the
     * reason shows without the limit: the container then gets the engine's own, lower one.
     */
    async attempt(spec, attempt) {
      const setOpenFiles = isSet(spec);
      try {
        await attempt(setOpenFiles);
      } catch (error) {
        if (!setOpenFiles || !isRefusedStart(error)) throw error;
        await attempt(false).catch(() => {
          throw error;
        });
        refused = Math.min(refused, spec.limits.openFiles);
      }
    },
  };
}

/** What the runtime refuses is 400 or 500, by the version of the engine; 404, 409 and the like are others. */
function isRefusedStart(error: unknown): boolean {
  return isCayError(error) && (error.details['status'] === 400 || error.details['status'] === 500);
}
