import type {
  DiffStat,
  FileChange,
  RolledBack,
  Snapshot,
  SnapshotPage,
  SnapshotRef,
  SnapshotTree,
  TakeSnapshot,
  TakeTurn,
} from './protocol/index.ts';
import type { CallOptions } from './sandbox-handle.ts';
import { SandboxPorts } from './sandbox-ports.ts';

/** The snapshots of a sandbox, and what has changed between them. */
export abstract class SandboxSnapshots extends SandboxPorts {
  /** Keeps what the sandbox is now: its files, and with `memory` its processes. It goes on meanwhile. */
  snapshot({ signal, ...request }: CallOptions & TakeSnapshot = {}): Promise<Snapshot> {
    return this.call('POST', '/snapshots', { signal, json: request });
  }

  /** Waits for running commands, keeps what the sandbox is, and gives it the next number. */
  turn({ signal, ...request }: CallOptions & TakeTurn = {}): Promise<Snapshot> {
    return this.call('POST', '/turns', { signal, json: request });
  }

  /** Its snapshots and turns, newest first. */
  async *snapshots({ signal }: CallOptions = {}): AsyncGenerator<Snapshot, void, undefined> {
    let cursor: string | undefined;
    do {
      const page = await this.transport.json<SnapshotPage>('GET', `${this.base}/snapshots`, {
        query: { cursor },
        signal,
      });
      yield* page.snapshots;
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Refused while there is a sandbox or a template that was made from it. */
  async removeSnapshot(snapshot: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json('DELETE', `/v1/snapshots/${encodeURIComponent(snapshot)}`, options);
  }

  /**
   * Goes back to a snapshot, its name, or a turn's number. What was there becomes a snapshot first, so this
   * can be undone.
   */
  async rollback(
    to: SnapshotRef,
    { signal, memory, force }: CallOptions & { memory?: boolean; force?: boolean } = {},
  ): Promise<RolledBack> {
    const result = await this.call<RolledBack>('POST', '/rollback', { signal, json: { to, memory, force } });
    this.info = result.sandbox;
    return result;
  }

  /** What has changed, path by path. */
  async *diff(
    from: SnapshotRef,
    to: SnapshotRef = 'now',
    { signal, paths }: CallOptions & { paths?: string[] } = {},
  ) {
    yield* this.transport.lines<FileChange>('GET', `${this.base}/diff`, {
      query: { from, to, path: paths },
      signal,
    });
  }

  /** How much has changed, in files and lines. */
  diffStat(
    from: SnapshotRef,
    to: SnapshotRef = 'now',
    { signal, paths }: CallOptions & { paths?: string[] } = {},
  ): Promise<DiffStat> {
    return this.transport.json('GET', `${this.base}/diff`, {
      query: { from, to, path: paths, format: 'stat' },
      signal,
    });
  }

  /** What has changed as a patch that `git apply` takes in `relative`, which is the root if absent. */
  async patch(
    from: SnapshotRef,
    to: SnapshotRef = 'now',
    { signal, paths, relative }: CallOptions & { paths?: string[]; relative?: string } = {},
  ): Promise<Response> {
    return this.transport.request('GET', `${this.base}/diff`, {
      query: { from, to, path: paths, format: 'patch', relative },
      signal,
    });
  }

  /** Files of a snapshot, a turn, or now, as a tar stream. */
  async export({
    signal,
    at = 'now',
    paths,
  }: CallOptions & { at?: SnapshotRef; paths?: string[] } = {}): Promise<Response> {
    return this.transport.request('GET', `${this.base}/export`, { query: { at, path: paths }, signal });
  }

  /** The snapshots of this sandbox and of its forks, and who stands where. */
  tree(options: CallOptions = {}): Promise<SnapshotTree> {
    return this.call('GET', '/tree', options);
  }
}
