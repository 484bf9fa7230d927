import { CayError, type Project } from '@cay/sdk/client';
import type { Client } from './client.ts';

/** Oldest first. An admin key sees all, another one its own. */
export async function projectsOf({ transport }: Client): Promise<Project[]> {
  return (await transport.json<{ projects: Project[] }>('GET', '/v1/projects')).projects;
}

/** By id or name; without one, the only project that the key sees. */
export async function projectNamed(client: Client, ref: string | undefined): Promise<Project> {
  const projects = await projectsOf(client);
  const found =
    ref === undefined
      ? projects.length === 1
        ? projects[0]
        : undefined
      : (projects.find(({ id }) => id === ref) ?? projects.find(({ name }) => name === ref));
  if (found) return found;
  throw new CayError(
    'not_found',
    ref === undefined
      ? `${projects.length} projects exist, and none is named`
      : `Project "${ref}" does not exist`,
    {
      hint: '"cay project ls" lists projects',
    },
  );
}
