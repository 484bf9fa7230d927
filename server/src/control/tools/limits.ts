/** Bounds of tools that are not part of a schema. */

/** Text of an answer: head and tail together. */
export const DEFAULT_OUTPUT_BYTES = 30_000;
/** How much of it is the head. */
export const HEAD_SHARE = 0.4;
/** Of an output that is saved in the sandbox. */
export const MOST_SAVED_BYTES = 64 * 1024 * 1024;
/** Where it is saved. */
export const SAVED_DIRECTORY = '/tmp/cay-tool-output';

/** Of a command that the model waits for. */
export const COMMAND_TIMEOUT_MS = 120_000;
/** Of a tool that the guest answers. */
export const GUEST_TIMEOUT_MS = 20_000;
/** Of a command in the background. */
export const BACKGROUND_TIMEOUT_MS = 2 * 3600_000;
