/**
 * The value if there is no promise in it, at any depth. Otherwise nothing fits. JSON writes a promise as
 * `{}`, and the error of one that rejects is lost.
 */
export type Settled<T> =
  T extends PromiseLike<unknown> ? never : T extends object ? { [Key in keyof T]: Settled<T[Key]> } : T;
