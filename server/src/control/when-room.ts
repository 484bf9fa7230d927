/** How soon what a full disk has kept from being recorded is tried again. */
export const FULL_AGAIN_MS = 1000;

/** Does it when there may be room again. What is only waiting keeps no process alive. */
export function whenRoom(work: () => unknown): void {
  setTimeout(() => void work(), FULL_AGAIN_MS).unref();
}
