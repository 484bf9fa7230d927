/**
 * One client of Codex's exec-server protocol, carried out in one sandbox.
 *
 * Messages are JSON-RPC without the field `jsonrpc`: one in a line, or one in a WebSocket message. What the
 * client sends is checked, and everything that it can make is bounded. Its processes end with its connection.
 */
import { randomUUID } from 'node:crypto';
import type { Sandbox } from '@cay/sdk/client';
import { z } from 'zod';
import { openFileSystem, pathOf, uriOf, type Params } from './file-system.ts';
import { openProcesses } from './processes.ts';
import { invalid, rpcError, RpcError } from './rpc-error.ts';

export const MOST_MESSAGE_BYTES = 96 * 1024 * 1024;
const MOST_UNDER_WAY = 128;
const USUAL_READ_BYTES = 64 * 1024;

const RequestSchema = z.object({
  id: z.union([z.string().max(256), z.int()]).optional(),
  method: z.string().max(128),
  params: z.record(z.string(), z.unknown()).nullish(),
});
const processId = z.string().min(1).max(256);
const StartSchema = z.object({
  processId,
  argv: z.array(z.string()).min(1).max(4096),
  cwd: z.string(),
  env: z.record(z.string(), z.string()),
  tty: z.boolean(),
  pipeStdin: z.boolean().default(false),
  arg0: z.string().nullish(),
});
const ReadSchema = z.object({
  processId,
  afterSeq: z.int().min(0).nullish(),
  maxBytes: z.int().min(0).nullish(),
  waitMs: z.int().min(0).nullish(),
});
const WriteSchema = z.object({ processId, chunk: z.string(), writeId: z.string().max(256).optional() });
const OfProcessSchema = z.object({ processId });

export interface ExecSession {
  /** Takes one message. Answers go to `send`. */
  receive(text: string): void;
  close(): void;
}

export function openExecSession(sandbox: Sandbox, send: (text: string) => void | Promise<void>): ExecSession {
  const processes = openProcesses(sandbox, (method, params) => send(JSON.stringify({ method, params })));
  const fileSystem = openFileSystem(sandbox);
  let initialized = false;
  let underWay = 0;

  const methods: Record<string, (params: Params) => Promise<object> | object> = {
    initialize() {
      if (initialized) throw invalid('"initialize" was sent already');
      initialized = true;
      return { sessionId: randomUUID() };
    },
    'environment/info': () => ({
      shell: { name: 'bash', path: '/bin/bash' },
      cwd: uriOf(sandbox.info.workdir),
      tempDir: uriOf('/tmp'),
      temporaryDirectories: [uriOf('/tmp')],
      capabilities: {},
    }),
    'environment/status': () => ({ status: 'ready' }),
    'process/start'(params) {
      const given = parsed(StartSchema, params);
      return processes.start({ ...given, cwd: pathOf(given.cwd), arg0: given.arg0 ?? null });
    },
    'process/read'(params) {
      const given = parsed(ReadSchema, params);
      return processes.read(
        given.processId,
        given.afterSeq ?? 0,
        given.maxBytes ?? USUAL_READ_BYTES,
        given.waitMs ?? 0,
      );
    },
    'process/write'(params) {
      const given = parsed(WriteSchema, params);
      return processes.write(given.processId, Buffer.from(given.chunk, 'base64'), given.writeId);
    },
    'process/signal': (params) => processes.interrupt(parsed(OfProcessSchema, params).processId),
    'process/terminate': (params) => processes.terminate(parsed(OfProcessSchema, params).processId),
    ...fileSystem,
  };

  async function answer(method: string, params: Params): Promise<object> {
    const call = Object.hasOwn(methods, method) ? methods[method] : undefined;
    if (call === undefined) throw new RpcError(-32601, `Cay has no method "${method}"`);
    if (!initialized && method !== 'initialize') throw invalid('"initialize" has to be sent first');
    return call(params);
  }

  async function handle(text: string): Promise<void> {
    let id: string | number = -1;
    try {
      const request = parsed(RequestSchema, parseJson(text));
      if (request.id === undefined) {
        if (request.method !== 'initialized') throw invalid(`"${request.method}" is no notification`);
        return;
      }
      id = request.id;
      if (underWay >= MOST_UNDER_WAY) throw invalid(`${MOST_UNDER_WAY} requests are under way already`);
      underWay++;
      try {
        await send(JSON.stringify({ id, result: await answer(request.method, request.params ?? {}) }));
      } finally {
        underWay--;
      }
    } catch (error) {
      await send(JSON.stringify({ id, error: rpcError(error) }));
    }
  }

  return { receive: (text) => void handle(text).catch(() => {}), close: () => processes.close() };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new RpcError(-32700, 'The message is not JSON');
  }
}

function parsed<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new RpcError(-32602, z.prettifyError(result.error));
}
