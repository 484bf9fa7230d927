/** Every gap between a record and a deed that the code names. */
export const FAULT_POINTS: readonly string[] = [];
