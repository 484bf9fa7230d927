/**
 * A copy of all objects of one kind that a selector names, kept up by a list and the watch that goes on from
 * it.
 *
 * A watch that ends goes on where it was. One whose place the API server has forgotten (410), or that reports
 * an error, starts again with a list, and reports what was missed meanwhile as if it had been watched: also
 * what has gone.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { isCayError } from '@cay/sdk/protocol';
import type { KubernetesClient } from './kubernetes-client.ts';
import type { KubernetesObject, List } from './objects.ts';
import { ignoreFailure, inBackground } from '../../../lib/in-background.ts';

export interface MirrorOptions<T> {
  /** Of the collection, such as `/apis/batch/v1/namespaces/x/jobs`. */
  path: string;
  /** What the objects are called in messages. */
  what: string;
  selector: string;
  /** Called with each object that is new, changed or, with `gone`, is there no longer. */
  onChange(object: T, gone: boolean): void;
}

export interface Mirror<T> {
  /** Resolves when the first list is there. Rejects if it cannot be had, and then nothing is kept up. */
  start(): Promise<void>;
  readonly objects: ReadonlyMap<string, T>;
  close(): void;
}

interface WatchEvent<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  object: T & { code?: number };
}

const FIRST_DELAY_MS = 50;
const MAX_DELAY_MS = 5_000;
/**
 * The server ends the watch after that time, so that a watch without a server is not believed for
 * ever.
 */
const WATCH_SECONDS = 240;
const PAGE = 500;

export function mirror<T extends KubernetesObject>(
  client: KubernetesClient,
  options: MirrorOptions<T>,
): Mirror<T> {
  const { path, what, selector, onChange } = options;
  const objects = new Map<string, T>();
  const closing = new AbortController();
  let started: Promise<void> | undefined;

  async function list(): Promise<string> {
    const found = new Map<string, T>();
    let version = '';
    let next: string | undefined;
    do {
      const query = { labelSelector: selector, limit: PAGE, continue: next };
      const page = (await client.json('GET', path, {
        action: `list ${what}`,
        query,
        signal: closing.signal,
      })) as List<T> & {
        metadata: { continue?: string };
      };
      for (const item of page.items) found.set(item.metadata.uid, item);
      version = page.metadata.resourceVersion;
      next = page.metadata.continue || undefined;
    } while (next !== undefined);
    for (const [uid, object] of objects) {
      if (found.has(uid)) continue;
      objects.delete(uid);
      onChange(object, true);
    }
    for (const object of found.values()) note(object);
    return version;
  }

  function note(object: T): void {
    const before = objects.get(object.metadata.uid);
    objects.set(object.metadata.uid, object);
    if (before?.metadata.resourceVersion !== object.metadata.resourceVersion) onChange(object, false);
  }

  /** Resolves with the resource version to continue from; `undefined` if a list is needed. */
  async function follow(from: string): Promise<string | undefined> {
    let version = from;
    const query = {
      watch: true,
      allowWatchBookmarks: true,
      labelSelector: selector,
      resourceVersion: from,
      timeoutSeconds: WATCH_SECONDS,
    };
    for await (const event of client.lines(path, {
      action: `watch ${what}`,
      query,
      signal: closing.signal,
    })) {
      const { type, object } = event as WatchEvent<T>;
      if (type === 'ERROR') return undefined;
      version = object.metadata.resourceVersion ?? version;
      if (type === 'BOOKMARK') continue;
      if (type !== 'DELETED') note(object);
      else if (objects.delete(object.metadata.uid)) onChange(object, true);
    }
    return version;
  }

  async function keepUp(first: string): Promise<void> {
    let version: string | undefined = first;
    let delayMs = 0;
    while (!closing.signal.aborted) {
      const at = Date.now();
      try {
        version = version === undefined ? await list() : await follow(version);
      } catch (error) {
        // The resource version has expired or cannot be read: list again.
        if (!isCayError(error) || error.details['status'] !== undefined) version = undefined;
      }
      delayMs =
        Date.now() - at > MAX_DELAY_MS ? 0 : Math.min(Math.max(FIRST_DELAY_MS, delayMs * 2), MAX_DELAY_MS);
      await sleep(delayMs, undefined, { signal: closing.signal }).catch(() => {});
    }
  }

  return {
    objects,
    start() {
      return (started ??= list().then(
        (version) => inBackground(keepUp(version), ignoreFailure),
        (error: unknown) => {
          started = undefined;
          throw error;
        },
      ));
    },
    close: () => closing.abort(),
  };
}
