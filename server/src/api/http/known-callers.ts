import type { KeyVerbs } from '../../control/tenants/key-verbs.ts';

/** Authenticates as `keys` does, and remembers which project a key belongs to. */
export interface KnownCallers extends Pick<KeyVerbs, 'authenticate'> {
  /**
   * The project of a key that was valid a moment ago. To sort requests by, before they are authenticated;
   * never to admit one.
   */
  projectOf(secret: string): string | undefined;
}

const REMEMBERED = 1000;

export function knownCallers(keys: Pick<KeyVerbs, 'authenticate'>): KnownCallers {
  const projects = new Map<string, string>();
  return {
    async authenticate(secret) {
      const principal = await keys.authenticate(secret);
      if (!principal) projects.delete(secret);
      else if (projects.get(secret) !== principal.project) {
        if (projects.size >= REMEMBERED) projects.delete(projects.keys().next().value!);
        projects.set(secret, principal.project);
      }
      return principal;
    },
    projectOf: (secret) => projects.get(secret),
  };
}
