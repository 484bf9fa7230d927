/**
 * Requests to every route of the OpenAPI document with values that are right, nearly right and hostile: with
 * the key of one tenant, with that of another, with none. No answer may be a failure of the server or tell of
 * the other tenant.
 */
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import { valueFor } from '../support/hostile-value.ts';
import type { Reply, Target, Tenant } from '../support/target.ts';

/** Some routes stream until the client disconnects. */
const PATIENCE_MS = 500;
const LARGE_BODY = 512 * 1024;
const CANARY = 'kestrel';

// The document is read as it is.
// oxlint-disable-next-line typescript/no-explicit-any
type Json = any;

export const api: Campaign = {
  name: 'api',
  targets: [{ backend: 'memory' }],
  async open(target, random) {
    const document = (await target.stranger('GET', '/openapi.json')).json as Json;
    const operations = Object.entries<Json>(document.paths).flatMap(([path, methods]) =>
      Object.entries<Json>(methods).map(([method, operation]) => ({
        path,
        method: method.toUpperCase(),
        operation,
      })),
    );
    const sides = [await settle(target, target.alice, random), await settle(target, target.bob, random)];
    const components = document.components.schemas as Record<string, Json>;

    return {
      async next() {
        const { path, method, operation } = random.pick(operations);
        const side = random.pick(sides);
        const other = sides.find((candidate) => candidate !== side)!;
        const anonymous = random.chance(0.15);
        const words = [
          ...side.words,
          ...side.words,
          ...other.ids,
          'user',
          '/tmp',
          '/home/user',
          'true',
          'sh',
          '3000',
          'now',
          '1',
        ];
        const options = { random, components, words, hostile: random.pick([0, 0.02, 0.2]) };
        const url = address(path, operation, (schema) => valueFor(schema, options), side);
        const request = bodyOf(operation, (schema) => valueFor(schema, options), random);
        const signal = AbortSignal.timeout(PATIENCE_MS);
        const call = anonymous ? target.stranger : side.tenant.call;
        const what = `${anonymous ? 'stranger' : side.tenant.name} ${operation.operationId} ${method} ${url.slice(0, 300)}`;
        const reply = await call(method, url, { ...request, signal }).catch((error: unknown) => {
          // Nobody has to answer in time to a request that asks to wait. Whether the server lives is looked
          // at elsewhere.
          if (signal.aborted) return undefined;
          // A body that is too large is not read to its end.
          if ((JSON.stringify(request.body) ?? '').length > LARGE_BODY) return undefined;
          // An answer that has begun can only end early: its status was sent.
          if ((error as Error).message === 'terminated') return undefined;
          // Bytes that end early have their connection reset, which can overtake the head of the answer.
          if (answersBytes(operation) && codeOf(error) === 'ECONNRESET') return undefined;
          throw new Error(`${what}: ${String(error)} ${String((error as Error).cause)}`);
        });
        if (!anonymous) side.learn(url + JSON.stringify(request.body ?? ''), other.ids);
        const sent = anonymous ? new Set(words) : side.known;
        if (reply) judge(reply, what, sent, anonymous ? [...side.secrets, ...other.secrets] : other.secrets);
        await side.restore();
        return `${what} ${JSON.stringify(request.body)?.slice(0, 300) ?? ''} → ${reply?.status ?? 'no answer in time'}`;
      },
    };
  },
};

function answersBytes(operation: Json): boolean {
  const answers = Object.values<Json>(operation.responses).flatMap(({ content }) =>
    Object.keys(content ?? {}),
  );
  return answers.some((type) => /octet-stream|tar/.test(type));
}

function codeOf(error: unknown): string | undefined {
  return ((error as Error).cause as NodeJS.ErrnoException | undefined)?.code;
}

interface Side {
  tenant: Tenant;
  /** Ids, which others may guess. */
  ids: string[];
  /** What this tenant's own requests name. */
  words: string[];
  /** Secrets that no other project may see. */
  secrets: string[];
  /** Ids of others that it has guessed: its own events and errors repeat them. */
  known: Set<string>;
  learn(sent: string, ids: readonly string[]): void;
  sandbox: string;
  /** Makes the sandbox again if it was removed. */
  restore(): Promise<void>;
}

async function settle(target: Target, tenant: Tenant, random: Random): Promise<Side> {
  const canary = `${CANARY}-${tenant.name}-${random.below(1e9)}`;
  await target.admin.call('PATCH', `/v1/projects/${tenant.name}`, { body: { quota: { sandboxes: 20 } } });
  const known = new Set<string>();
  const learn = (sent: string, ids: readonly string[]) =>
    ids.filter((id) => sent.includes(id)).forEach((id) => known.add(id));
  const side: Side = { tenant, ids: [], words: [], secrets: [], known, learn, sandbox: '', restore };
  let made = 0;

  async function restore(): Promise<void> {
    if (side.sandbox !== '') {
      const { status } = await tenant.call('GET', `/v1/sandboxes/${side.sandbox}`);
      if (status === 200) return;
      const { json } = await tenant.call('GET', '/v1/sandboxes?limit=100');
      for (const { id } of (json?.sandboxes ?? []) as { id: string }[])
        await tenant.call('DELETE', `/v1/sandboxes/${id}`);
    }
    const labels = { canary };
    const { id } = await tenant.create({
      name: `${canary}-${made++}`.toLowerCase(),
      labels,
      env: { CANARY: canary },
    });
    const snapshot = await tenant.call('POST', `/v1/sandboxes/${id}/snapshots`, {
      body: { name: `${canary}-${made}` },
    });
    side.sandbox = id;
    side.ids = [id, snapshot.json?.id ?? 'none', tenant.project];
    side.words = [...side.ids, tenant.name, `${tenant.name}-box`];
    side.secrets = [...new Set([...side.secrets.slice(-20), tenant.project, canary, id])];
  }
  await restore();
  return side;
}

function address(path: string, operation: Json, value: (schema: Json) => unknown, side: Side): string {
  const text = (schema: Json) => {
    const made = value(schema);
    return encodeURIComponent(
      (typeof made === 'string' ? made : (JSON.stringify(made) ?? '')).slice(0, 4000).toWellFormed(),
    );
  };
  const query: string[] = [];
  let url = path;
  for (const { name, in: where, schema, required } of operation.parameters as Json[]) {
    if (where === 'path')
      url = url.replace(
        `{${name}}`,
        name === 'id' && !text(schema).startsWith('%') ? side.sandbox : text(schema),
      );
    else if (where === 'query' && (required || value({ type: 'boolean' }) === true))
      query.push(`${name}=${text(schema)}`);
  }
  return query.length === 0 ? url : `${url}?${query.join('&')}`;
}

function bodyOf(operation: Json, value: (schema: Json) => unknown, random: Random): { body?: unknown } {
  const content = operation.requestBody?.content as Json;
  if (content === undefined) return {};
  const schema = content['application/json']?.schema;
  if (schema === undefined) return { body: new Uint8Array(random.below(5000)).map(() => random.below(256)) };
  const body = value(schema);
  return { body: typeof body === 'object' && body !== null ? body : JSON.stringify(body) };
}

function judge(
  { status, text }: Reply,
  what: string,
  sent: ReadonlySet<string>,
  secrets: readonly string[],
): void {
  if (status === 500) throw new Error(`${what} answered 500: ${text.slice(0, 500)}`);
  const told = secrets.find((secret) => text.includes(secret) && !sent.has(secret));
  if (told !== undefined)
    throw new Error(`${what} was told "${told}" of another tenant: ${text.slice(0, 500)}`);
}
