import type { Settings } from '../settings.ts';

type WithoutPrefix<T> = {
  [K in keyof T as K extends `kubernetes${infer Rest}` ? Uncapitalize<Rest> : never]: T[K];
};

const PREFIX = 'kubernetes';

/** The settings of the group Kubernetes, by their names without the prefix: `guestImage`. */
export function clusterOf(settings: Settings): WithoutPrefix<Settings> {
  const found = Object.entries(settings)
    .filter(([name]) => name.startsWith(PREFIX))
    .map(([name, value]) => [
      name.charAt(PREFIX.length).toLowerCase() + name.slice(PREFIX.length + 1),
      value,
    ]);
  return Object.fromEntries(found) as WithoutPrefix<Settings>;
}
