/**
 * @module Cay as the self-hosted sandboxes of the OpenAI Agents API.
 *
 *     const handle = executorWebhook({ client: new OpenAI(), executorKey, template: 'codex' });
 *     serve({ fetch: handle, port: 8080 });
 *
 * When a session needs its environment, the webhook starts or wakes the sandbox of that session and runs the
 * executor, `codex exec-server`, in it. The executor's key is a stored secret of Cay: the program inside has
 * a placeholder, and the server puts the key on its requests to the API.
 */
import {
  isCayError,
  Sandbox,
  Secrets,
  type ConnectOptions,
  type CreateSandboxInput,
  type NetworkRule,
} from '@cay/sdk';
import { createHash } from 'node:crypto';
import type OpenAI from 'openai';

export interface ExecutorOptions
  extends
    ConnectOptions,
    Pick<CreateSandboxInput, 'template' | 'limits' | 'timeoutMs' | 'onTimeout' | 'idle'> {
  client: OpenAI;
  /** The restricted key that executors register with. It is stored as a secret of Cay. */
  executorKey: string;
  /** What signs webhooks. Default: `webhookSecret` of the client. */
  webhookSecret?: string;
  /** Where executors register. Default: `https://api.openai.com`. */
  api?: string;
  /** Where executors are connected. Default: `codex-cloud-environments.chatgpt.com`. */
  relay?: string;
  /** What else sandboxes may reach. */
  allow?: readonly NetworkRule[];
  /** The executor inside. Default: `codex`. */
  command?: string;
}

const SECRET = 'openai-executor-key';
const SESSION = 'openai.session';
const EXECUTOR = 'openai-executor';

/** Answers 400 to what is not signed. Repeated events start nothing twice. */
export function executorWebhook(options: ExecutorOptions): (request: Request) => Promise<Response> {
  const { client, webhookSecret } = options;
  return async (request) => {
    let event: { type: string; data: { id: string; required_action?: { type: string } } };
    try {
      event = (await client.webhooks.unwrap(
        await request.text(),
        request.headers,
        webhookSecret,
      )) as typeof event;
    } catch {
      return new Response('The signature of the webhook is wrong', { status: 400 });
    }
    const { id, required_action: action } = event.data;
    if (event.type === 'agent.session.action_required' && action?.type === 'environment_connection')
      await connectEnvironments(options, id);
    else if (event.type === 'agent.session.failed') await release(options, id);
    return new Response(null, { status: 204 });
  };
}

/** Starts or wakes the sandbox of a session, with an executor for each environment that waits for one. */
export async function connectEnvironments(
  options: ExecutorOptions,
  session: string,
): Promise<Sandbox | undefined> {
  const { required_actions: actions } = (await options.client.beta.agents.sessions.retrieve(
    session,
  )) as unknown as {
    required_actions: { type: string; environment_id?: string }[] | null;
  };
  const waiting = (actions ?? []).filter(({ type }) => type === 'environment_connection');
  // Another delivery of the same event may have been quicker.
  if (waiting.length === 0) return undefined;
  const sandbox = await sandboxOf(options, session);
  for (const { environment_id: environment } of waiting)
    if (environment !== undefined) await startExecutor(options, sandbox, environment);
  return sandbox;
}

/** Removes the sandbox of a session. */
export async function release(options: ExecutorOptions, session: string): Promise<void> {
  const sandbox = await Sandbox.connect(nameOf(session), accessOf(options)).catch((error: unknown) => {
    if (!isCayError(error, 'not_found')) throw error;
  });
  await sandbox?.kill();
}

async function sandboxOf(options: ExecutorOptions, session: string): Promise<Sandbox> {
  const { template, limits, timeoutMs, onTimeout, idle, executorKey, allow = [] } = options;
  const { api = 'https://api.openai.com', relay = 'codex-cloud-environments.chatgpt.com' } = options;
  await new Secrets(accessOf(options)).set(SECRET, executorKey);
  const given = { template, limits, timeoutMs, onTimeout, idle };
  const defined = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const put = { as: 'placeholder' as const, secret: SECRET, env: 'CODEX_API_KEY' };
  return Sandbox.create(
    {
      ...defined,
      name: nameOf(session),
      getOrCreate: true,
      labels: { [SESSION]: session },
      network: { base: 'none', allow: [{ to: new URL(api).host, put }, relay, ...allow] },
    },
    accessOf(options),
  );
}

/** One that runs goes on: the same id in the same sandbox is the same command. */
async function startExecutor(
  { command = 'codex', api = 'https://api.openai.com' }: ExecutorOptions,
  sandbox: Sandbox,
  environment: string,
): Promise<void> {
  const id = `${EXECUTOR}-${createHash('sha256').update(environment).digest('hex').slice(0, 16)}`;
  const known = (await sandbox.commands()).filter((one) => one.id.startsWith(id));
  if (known.some(({ end }) => end === undefined)) return;
  await sandbox.launch([command, 'exec-server', '--remote', api, '--environment-id', environment], {
    id: `${id}-${known.length + 1}`,
    overflow: 'drop',
  });
}

const accessOf = ({ url, apiKey, fetch, WebSocket }: ConnectOptions): ConnectOptions => ({
  url,
  apiKey,
  fetch,
  WebSocket,
});
const nameOf = (session: string) =>
  `openai-${createHash('sha256').update(session).digest('hex').slice(0, 32)}`;
