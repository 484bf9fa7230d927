import { subscribe } from 'node:diagnostics_channel';
import type { ClientRequest } from 'node:http';

/**
 * Counts the requests that this process makes from now on, upgrades to other protocols included, to paths
 * with `part` in them.
 */
export function countRequests(part: string): () => number {
  let count = 0;
  subscribe('http.client.request.start', (message) => {
    if ((message as { request: ClientRequest }).request.path.includes(part)) count++;
  });
  return () => count;
}
