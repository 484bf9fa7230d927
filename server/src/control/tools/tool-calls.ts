/**
 * Remembers tool calls that have an id, in one small file for each: first that the call began, then its
 * result. The file is made with an exclusive create, so one of two servers that get the same id runs it.
 */
import { createHash } from 'node:crypto';
import { mkdir, open, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError, isCayError, ToolResultSchema, type ToolResult } from '@cay/sdk/protocol';
import { z } from 'zod';
import { syncDirectory, writeFileAtomic } from '../../lib/atomic-file.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { inBackground } from '../../lib/in-background.ts';
import { toolCallFiles, type ToolCallFilesOptions } from './tool-call-files.ts';

/** Calls that are remembered of one sandbox. */
const MOST_CALLS = 512;
/** A result that is larger, such as an image, is not kept: the call is one that only reads. */
const LARGEST_RESULT = 1024 * 1024;

const RecordSchema = z.object({
  request: z.string(),
  result: ToolResultSchema.optional(),
  /** There was a result, which took too much. */
  dropped: z.boolean().optional(),
});

export interface ToolCalls {
  /**
   * Begins a call. `again` is the result of an earlier one; `unfinished` says that an earlier one began and
   * its result is not known, `dropped` that it was done and its result is not kept. Rejects `conflict` if the
   * id was used for another request.
   */
  begin(call: ToolCallKey): Promise<{ again?: ToolResult; unfinished: boolean; dropped?: boolean }>;
  finish(call: ToolCallKey, result: ToolResult): Promise<void>;
  /** Nothing was done: the id may be used again. */
  release(call: ToolCallKey): Promise<void>;
  /** Forgets the calls of a sandbox that is gone. */
  forget(sandbox: string): Promise<void>;
  /**
   * Forgets the calls of sandboxes that do not exist any more, and measures those of the others. `projectOf`
   * is undefined for one that is gone.
   */
  sweep(projectOf: (sandbox: string) => string | undefined): Promise<void>;
}

export interface ToolCallKey {
  sandbox: string;
  project: string;
  id: string;
  /** What was asked for. */
  request: unknown;
}

const digest = (text: string) => createHash('sha256').update(text).digest('hex');
const requestOf = ({ request }: ToolCallKey) => digest(JSON.stringify(request));

export interface ToolCallsOptions extends Omit<ToolCallFilesOptions, 'dropResult'> {
  onError(error: unknown): void;
}

export function openToolCalls({ onError, ...options }: ToolCallsOptions): ToolCalls {
  const { directory } = options;
  const files = toolCallFiles({ ...options, dropResult });
  const counts = new Map<string, number>();
  const placeOf = ({ sandbox, id }: ToolCallKey) => join(directory, sandbox, `${digest(id)}.json`);

  async function read(call: ToolCallKey): Promise<z.output<typeof RecordSchema> | undefined> {
    try {
      return RecordSchema.parse(JSON.parse(await readFile(placeOf(call), 'utf8')));
    } catch (error) {
      // A server that died while it made the file has not begun the call.
      if (error instanceof SyntaxError || error instanceof z.ZodError) return undefined;
      throw error;
    }
  }

  async function dropResult(path: string): Promise<number> {
    try {
      const text = await readFile(path, 'utf8');
      const { request, result } = RecordSchema.parse(JSON.parse(text));
      if (!result) return 0;
      const left = JSON.stringify({ request, dropped: true });
      await writeFileAtomic(path, left);
      return Buffer.byteLength(text) - left.length;
    } catch {
      // It is gone, or it is no record.
      return 0;
    }
  }

  /** The oldest calls are forgotten first. */
  async function trim({ sandbox, project }: ToolCallKey): Promise<void> {
    const folder = join(directory, sandbox);
    const count = counts.get(sandbox);
    if (count !== undefined && count < MOST_CALLS) return void counts.set(sandbox, count + 1);
    const names = await readdir(folder);
    if (names.length >= MOST_CALLS) {
      const aged = await Promise.all(
        names.map(async (name) => ({
          name,
          at: await stat(join(folder, name)).then(
            ({ mtimeMs }) => mtimeMs,
            () => 0,
          ),
        })),
      );
      aged.sort((a, b) => a.at - b.at);
      const dropped = aged.slice(0, names.length - Math.floor(MOST_CALLS * 0.9));
      await Promise.all(dropped.map(({ name }) => rm(join(folder, name), { force: true })));
      await files.measure(sandbox, project);
      counts.set(sandbox, names.length - dropped.length + 1);
    } else counts.set(sandbox, names.length + 1);
    if (counts.size > 10_000) counts.clear();
  }

  const calls: ToolCalls = {
    async begin(call) {
      const folder = join(directory, call.sandbox);
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await trim(call);
      try {
        const file = await open(placeOf(call), 'wx', 0o600);
        try {
          await file.writeFile(JSON.stringify({ request: requestOf(call) }));
          await file.datasync();
        } finally {
          await file.close();
        }
        await syncDirectory(folder);
        await faultPoint('control.tool.begun');
        return { unfinished: false };
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
      const known = await read(call);
      if (!known) {
        await rm(placeOf(call), { force: true });
        return calls.begin(call);
      }
      if (known.request !== requestOf(call))
        throw new CayError('conflict', `The toolCallId "${call.id}" was used for another call`, {
          hint: 'use a new toolCallId for a new call',
        });
      if (known.result) return { again: known.result, unfinished: false };
      return { unfinished: true, dropped: known.dropped ?? false };
    },

    async finish(call, result) {
      await faultPoint('control.tool.done');
      const record = JSON.stringify({ request: requestOf(call), result });
      if (record.length > LARGEST_RESULT) return calls.release(call);
      try {
        await writeFileAtomic(placeOf(call), record);
        files.grew(call.sandbox, call.project, Buffer.byteLength(record));
        inBackground(files.trim(call.project), onError);
      } catch (error) {
        // The sandbox was removed meanwhile, and with it what is remembered of it.
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT' && !isCayError(error)) throw error;
      }
    },

    release: (call) => rm(placeOf(call), { force: true }),

    async forget(sandbox) {
      counts.delete(sandbox);
      await files.forget(sandbox);
    },

    async sweep(projectOf) {
      for (const name of await readdir(directory).catch(() => [])) {
        const project = projectOf(name);
        if (project === undefined) await files.forget(name);
        else await files.measure(name, project);
      }
    },
  };
  return calls;
}
