const audited = new WeakSet<Error>();

/** Marks an error that an event already describes, so that no second event is written for it. */
export function markAudited<T>(error: T): T {
  if (error instanceof Error) audited.add(error);
  return error;
}

export function isAudited(error: unknown): boolean {
  return error instanceof Error && audited.has(error);
}
