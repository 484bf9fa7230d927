import { join, dirname } from 'node:path';
import { performance } from 'node:perf_hooks';
import {
  CayError,
  isCayError,
  ToolCallSchema,
  type SandboxId,
  type ToolCall,
  type ToolDialect,
  type ToolResult,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Guest } from '../../guest/guest.ts';
import { nearest } from '../../lib/nearest.ts';
import { inBackground } from '../../lib/in-background.ts';
import type { Records } from '../../records/records.ts';
import type { Control } from '../control.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';
import type { Principal } from '../tenants/principal.ts';
import { DIALECTS, describeTools } from './describe-tools.ts';
import type { DialectTool } from './dialects/dialect.ts';
import { openToolCalls, type ToolCallKey } from './tool-calls.ts';
import type { RunningCall, ToolCallOptions, ToolOutcome, ToolVerbs } from './tool.ts';

/** What tools need of the rest of the control plane. */
export interface ToolsOptions {
  control: Pick<Control, 'commands' | 'enter' | 'files' | 'snapshot' | 'get'>;
  records: Records;
  quota: Pick<QuotaLedger, 'counts' | 'limit' | 'used'>;
  /** A guest whose calls do not wait for a pause that is on its way. */
  connect(id: SandboxId): Promise<Guest>;
  /** Counts a command that a client waits for, until it is disposed of. */
  hold(id: SandboxId): Disposable;
  directories: { logs: string };
  onError(error: unknown): void;
}

export interface OpenedTools {
  readonly verbs: ToolVerbs;
  close(): Promise<void>;
}

/** Errors that are about the call itself, and so no result of a tool. */
const REFUSALS = new Set(['internal', 'unavailable', 'unsupported']);
const LONGEST_TIMEOUT_MS = 7_200_000;

export function openTools(options: ToolsOptions): OpenedTools {
  const { control, connect, hold, directories, records, quota, onError } = options;
  const directory = join(dirname(directories.logs), 'tool-calls');
  const calls = openToolCalls({ directory, records, quota, onError });
  const running = new Map<string, number>();
  /** Calls with an id, so that two at the same time share one run. */
  const shared = new Map<string, { request: string; result: Promise<ToolResult> }>();
  const sweeping = async () => {
    const rows = await records.sandboxes.list({});
    const projects = new Map<string, string>(rows.map(({ id, project }) => [id, project]));
    await calls.sweep((name) => projects.get(name));
  };
  sweeping().catch(onError);
  const unlisten = records.events.listen(({ type, sandbox }) => {
    if (type === 'sandbox.removed' && sandbox !== null) inBackground(calls.forget(sandbox), onError);
  });

  async function run(
    { tool, call, input }: Asked,
    place: Place,
    options: ToolCallOptions,
  ): Promise<ToolResult> {
    const { principal, id } = place;
    const startedAt = performance.now();
    using _ = count(id);
    const timeoutMs = Math.min(
      call.timeoutMs ?? tool.timeoutOf?.(input) ?? tool.timeoutMs,
      LONGEST_TIMEOUT_MS,
    );
    const { guest, row } = await control.enter(principal, id);
    const user = call.user ?? row.spec.user;
    const signal = options.signal ?? new AbortController().signal;
    const runningCall: RunningCall = {
      principal,
      sandbox: id,
      user,
      workdir: row.spec.workdir,
      call,
      timeoutMs,
      signal,
      onProgress: (progress) => options.onProgress?.(progress),
    };
    const { files } = await control.files(principal, id, user);
    const outcome = await tool
      .run(
        { guest, files, commands: control.commands, connect: () => connect(id) },
        runningCall,
        input as never,
      )
      .catch((error: unknown) => failed(error, signal));
    const snapshot = call.snapshot
      ? await control.snapshot(principal, id, snapshotOf(tool, call))
      : undefined;
    return {
      tool: tool.name,
      ...(call.toolCallId !== undefined && { toolCallId: call.toolCallId }),
      tier: tool.tier,
      isError: false,
      ...outcome,
      durationMs: Math.round((performance.now() - startedAt) * 1000) / 1000,
      ...(snapshot && { snapshot: snapshot.id }),
      repeated: false,
    };
  }

  function count(id: SandboxId): Disposable {
    const held = hold(id);
    running.set(id, (running.get(id) ?? 0) + 1);
    return {
      [Symbol.dispose]() {
        held[Symbol.dispose]();
        const left = running.get(id)! - 1;
        if (left === 0) running.delete(id);
        else running.set(id, left);
      },
    };
  }

  async function once(asked: Asked, place: Place, options: ToolCallOptions): Promise<ToolResult> {
    const { tool, call, input } = asked;
    const request = { tool: tool.name, dialect: call.dialect, input, user: call.user ?? null };
    const { id: sandbox, project } = place;
    const key: ToolCallKey = { sandbox, project, id: call.toolCallId!, request };
    const begun = await calls.begin(key);
    if (begun.again) return { ...begun.again, repeated: true };
    // What was started under the id may be forgotten with the logs, so that it would run again.
    if (begun.dropped && tool.effect !== 'reads') return notKept(tool, call);
    if (begun.unfinished && tool.effect === 'changes') {
      const result = unknownOutcome(tool, call);
      await calls.finish(key, result);
      return result;
    }
    try {
      // The call belongs to its id, and not to who sent it first.
      const result = await run(asked, place, { ...options, signal: undefined });
      await calls.finish(key, result);
      return result;
    } catch (error) {
      if (tool.effect !== 'changes' || isCayError(error)) await calls.release(key).catch(onError);
      throw error;
    }
  }

  function shareRun(asked: Asked, place: Place, options: ToolCallOptions): Promise<ToolResult> {
    const name = `${place.id} ${asked.call.toolCallId}`;
    const request = JSON.stringify([asked.tool.name, asked.call.dialect, asked.input]);
    const known = shared.get(name);
    if (known) {
      if (known.request !== request)
        throw new CayError('conflict', `The toolCallId "${asked.call.toolCallId}" is used for another call`);
      return known.result.then((result) => ({ ...result, repeated: true }));
    }
    const result = once(asked, place, options).finally(() => shared.delete(name));
    shared.set(name, { request, result });
    return result;
  }

  const verbs: ToolVerbs = {
    async call(principal, ref, name, given, options = {}) {
      const call = parse(ToolCallSchema, given, '');
      const tool = toolOf(call.dialect, name);
      const input = parse(tool.schema, call.input, 'input.');
      const { id, project } = await control.get(principal, ref);
      const place: Place = { principal, project, id: id as SandboxId };
      const asked: Asked = { tool, call, input };
      if (call.toolCallId === undefined) return run(asked, place, options);
      return withSignal(shareRun(asked, place, options), options.signal);
    },
    describe: ({ dialect, format }) => describeTools(dialect, format),
    inFlight: (id) => running.get(id) ?? 0,
  };
  return { verbs, close: async () => unlisten() };
}

interface Asked {
  tool: DialectTool;
  call: ToolCall;
  input: unknown;
}

interface Place {
  principal: Principal;
  project: string;
  id: SandboxId;
}

/** A caller that is gone does not wait; the call goes on. */
async function withSignal<T>(result: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return result;
  result.catch(() => {});
  signal.throwIfAborted();
  const { promise, reject } = Promise.withResolvers<never>();
  const gone = () => reject(signal.reason as Error);
  signal.addEventListener('abort', gone, { once: true });
  try {
    return await Promise.race([result, promise]);
  } finally {
    signal.removeEventListener('abort', gone);
  }
}

function toolOf(dialect: ToolDialect, name: string): DialectTool {
  const tools = DIALECTS[dialect];
  const tool = tools.get(name);
  if (tool) return tool;
  const near = nearest(name, [...tools.keys()]);
  throw new CayError('not_found', `There is no tool "${name.slice(0, 100)}" in the dialect "${dialect}"`, {
    hint: near === undefined ? `it has ${[...tools.keys()].join(', ')}` : `did you mean "${near}"?`,
  });
}

function parse<Schema extends z.ZodType>(schema: Schema, value: unknown, prefix: string): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  const field = `${prefix}${issue.path.map(String).join('.')}`.replace(/\.$/, '');
  throw new CayError('invalid_argument', `"${field}" of the tool call: ${issue.message}`, {
    details: { field },
  });
}

/** An error inside the sandbox is a result for the model. */
function failed(error: unknown, signal: AbortSignal): ToolOutcome {
  if (!isCayError(error) || signal.aborted || REFUSALS.has(error.code)) throw error;
  const { code, message, hint, details } = error.toWire();
  return {
    content: [{ type: 'text', text: hint === undefined ? message : `${message}\nHint: ${hint}` }],
    structured: {},
    isError: true,
    error: { code, message, ...(hint !== undefined && { hint }), ...(details && { details }) },
  };
}

function unknownOutcome(tool: DialectTool, call: ToolCall): ToolResult {
  const message = `The server was restarted while this call was under way: whether "${tool.name}" was done is not known`;
  return withoutResult(tool, call, message, 'outcome_unknown');
}

function notKept(tool: DialectTool, call: ToolCall): ToolResult {
  const message = `The call was done before, and its result is not kept: the project is at its quota for logs`;
  return withoutResult(tool, call, message, 'result_dropped');
}

function withoutResult(
  tool: DialectTool,
  { toolCallId }: ToolCall,
  message: string,
  reason: string,
): ToolResult {
  const hint = 'look at the files, and use a new toolCallId to do it again';
  return {
    tool: tool.name,
    toolCallId,
    tier: tool.tier,
    content: [{ type: 'text', text: `${message}\nHint: ${hint}` }],
    structured: {},
    isError: true,
    error: { code: 'unavailable', message, hint, details: { reason } },
    durationMs: 0,
    repeated: true,
  };
}

const snapshotOf = (tool: DialectTool, { toolCallId }: ToolCall) => ({
  labels: { tool: tool.name, ...(toolCallId !== undefined && { 'tool-call': toolCallId.slice(0, 60) }) },
});
