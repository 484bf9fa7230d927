import type { KubernetesClient } from '../client/kubernetes-client.ts';
import type { KubernetesObject, List } from '../client/objects.ts';

/** The objects of a collection with these labels. */
export async function listOf<T>(
  client: KubernetesClient,
  path: string,
  labelSelector: string,
  action: string,
  signal?: AbortSignal,
): Promise<T[]> {
  return ((await client.json('GET', path, { action, query: { labelSelector }, signal })) as List<T>).items;
}

/** One object; `undefined` if there is none. */
export async function read<T extends KubernetesObject>(
  client: KubernetesClient,
  path: string,
  action: string,
  signal?: AbortSignal,
): Promise<T | undefined> {
  return (await client.json('GET', path, { action, allow: [404], signal })) as T | undefined;
}
