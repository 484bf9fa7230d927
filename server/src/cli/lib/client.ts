/**
 * The command line's side of a server: one connection, and sandboxes by id, name or the beginning of an id.
 */
import {
  CayError,
  Sandbox,
  connect,
  isCayError,
  type ConnectOptions,
  type CreateSandboxInput,
  type Transport,
} from '@cay/sdk/client';
import { usageError } from './failure.ts';
import { addressOf, type CommonOptions } from './settings.ts';
import { transportOptions } from './transport.ts';

interface FindOptions {
  /** False for what cannot be undone: the whole id or name has to be given. */
  prefix?: boolean;
}

export interface Client {
  readonly transport: Transport;
  readonly options: ConnectOptions;
  create(request: CreateSandboxInput): Promise<Sandbox>;
  /** Rejects `not_found`, or `invalid_argument` if several ids begin so. */
  sandbox(ref: string, options?: FindOptions): Promise<Sandbox>;
}

/** Characters after `sbx_` by which a sandbox may be named. */
const SHORTEST_PREFIX = 4;
const PREFIX = new RegExp(`^(?:sbx_)?[a-z0-9]{${SHORTEST_PREFIX},20}$`);
const SHOWN = 4;

export function openClient(options: CommonOptions): Client {
  const { url, apiKey, certificate } = addressOf(options);
  const connectOptions: ConnectOptions = { url, apiKey, ...transportOptions(certificate) };
  return {
    transport: connect(connectOptions),
    options: connectOptions,
    create: (request) => Sandbox.create(request, connectOptions),
    async sandbox(ref, { prefix = true } = {}) {
      if (ref.trim() === '')
        throw usageError('The name of a sandbox is empty', 'is a variable unset? "cay ls" lists sandboxes');
      try {
        return await Sandbox.connect(ref, connectOptions);
      } catch (error) {
        if (!isCayError(error, 'not_found') && !isCayError(error, 'invalid_argument')) throw error;
        const found = PREFIX.test(ref) ? await beginningWith(ref, connectOptions) : [];
        if (prefix && found.length === 1) return found[0]!;
        throw notOne(ref, found, error);
      }
    },
  };
}

async function beginningWith(ref: string, options: ConnectOptions): Promise<Sandbox[]> {
  const found: Sandbox[] = [];
  const prefix = ref.startsWith('sbx_') ? ref : `sbx_${ref}`;
  for await (const sandbox of Sandbox.list(options)) if (sandbox.id.startsWith(prefix)) found.push(sandbox);
  return found;
}

function notOne(ref: string, found: Sandbox[], cause: CayError): CayError {
  const ids = found.slice(0, SHOWN).map(({ id }) => id);
  if (found.length > 1)
    return new CayError(
      'invalid_argument',
      `${found.length} sandboxes have an id that begins with "${ref}"`,
      {
        cause,
        hint: `give more of it: ${ids.join(', ')}`,
      },
    );
  return new CayError('not_found', `Sandbox "${ref}" does not exist`, {
    cause,
    hint:
      found.length === 1
        ? `this cannot be undone, so give the whole id: ${ids[0]}`
        : `"cay ls" lists those that do; the beginning of an id has ${SHORTEST_PREFIX} characters or more`,
  });
}
