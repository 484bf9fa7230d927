/**
 * Failures in the words of the command line.
 *
 * The API names fields and bytes; readers here know flags and sizes such as `16m`. What a failure is about
 * is read from its code, its `details` and its cause, never from its message.
 */
import { CayError, isCayError } from '@cay/sdk/client';
import { errnoOf, errnoText, isUntrusted, reachHint } from '@cay/sdk/system-error';
import { formatBytes, formatDuration, formatSize } from './units.ts';

const MiB = 1024 * 1024;

type Kind = 'size' | 'time' | 'number' | 'text';

/** The flag that gives a field of a request, and how its value is written. */
const FLAGS: Record<string, readonly [flag: string, kind: Kind]> = {
  name: ['--name', 'text'],
  template: ['--template', 'text'],
  runtime: ['--runtime', 'text'],
  platform: ['--platform', 'text'],
  snapshot: ['--snapshot', 'text'],
  label: ['--label', 'text'],
  labels: ['--label', 'text'],
  env: ['--env', 'text'],
  workdir: ['--workdir', 'text'],
  user: ['--user', 'text'],
  ports: ['--port', 'text'],
  publish: ['--publish', 'text'],
  networks: ['--join', 'text'],
  hostPort: ['--publish', 'number'],
  mounts: ['--volume', 'text'],
  buckets: ['--bucket', 'text'],
  sizeBytes: ['--size', 'size'],
  state: ['--state', 'text'],
  cpus: ['--cpus', 'number'],
  memoryBytes: ['--memory', 'size'],
  diskBytes: ['--disk', 'size'],
  pids: ['--pids', 'number'],
  openFiles: ['--open-files', 'number'],
  timeoutMs: ['--timeout', 'time'],
  onTimeout: ['--on-timeout', 'text'],
  waitMs: ['--wait', 'time'],
  graceMs: ['--time', 'time'],
  intervalMs: ['--interval', 'time'],
  freezeAfterMs: ['--freeze-after', 'time'],
  suspendAfterMs: ['--suspend-after', 'time'],
  hibernateAfterMs: ['--hibernate-after', 'time'],
  archiveAfterMs: ['--archive-after', 'time'],
  destroyAfterMs: ['--destroy-after', 'time'],
  count: ['--count', 'number'],
  types: ['--type', 'text'],
  role: ['--role', 'text'],
  project: ['--project', 'text'],
  path: ['--path', 'text'],
};

const QUOTAS: Record<string, readonly [what: string, kind: Kind]> = {
  sandboxes: ['sandboxes', 'number'],
  cpus: ['cores', 'number'],
  memoryBytes: ['memory', 'size'],
  pids: ['processes', 'number'],
  diskBytes: ['disk', 'size'],
  snapshots: ['snapshots', 'number'],
  snapshotBytes: ['snapshots on disk', 'size'],
  volumes: ['volumes', 'number'],
  volumeBytes: ['volumes on disk', 'size'],
  uploadBytes: ['uploads', 'size'],
  imageBytes: ['images', 'size'],
  logBytes: ['command logs', 'size'],
  buckets: ['buckets', 'number'],
  bucketMounts: ['mounts of buckets', 'number'],
  bucketMountBytes: ['unwritten files of mounts', 'size'],
  webhooks: ['webhooks', 'number'],
  secrets: ['secrets', 'number'],
  secretBytes: ['values of secrets', 'size'],
  previewConnections: ['preview connections', 'number'],
  publishedPorts: ['published ports', 'number'],
  egressConnections: ['connections out of sandboxes', 'number'],
  egressBufferBytes: ['bytes held for connections', 'size'],
};

interface Words {
  message?: string;
  hint?: string;
}

/**
 * The same failure for a reader of the command line. `flags` are those that the verb has; absent means all.
 */
export function inCliWords(error: unknown, flags?: readonly string[]): CayError {
  const known = isCayError(error) ? error : unexpected(error);
  const words =
    issueWords(known, flags) ??
    limitWords(known) ??
    unenforcedWords(known) ??
    quotaWords(known) ??
    stateWords(known) ??
    volumeWords(known) ??
    keyWords(known) ??
    listenWords(known) ??
    reachWords(known);
  if (!words) return known;
  const hint = words.hint ?? (words.message === undefined ? known.hint : undefined);
  return new CayError(known.code, words.message ?? known.message, {
    cause: known.cause ?? known,
    details: known.details,
    ...(hint !== undefined && { hint }),
  });
}

/** A failure that no verb has foreseen: of the operating system, or a fault of ours. */
function unexpected(error: unknown): CayError {
  const errno = errnoOf(error);
  if (errno === undefined)
    return new CayError('internal', String((error as Error)?.message ?? error), { cause: error });
  const { syscall, path } = error as NodeJS.ErrnoException;
  const what = path === undefined ? (syscall ?? 'go on') : `${syscall ?? 'use'} "${path}"`;
  const denied = errno === 'EACCES' || errno === 'EPERM';
  return new CayError(
    denied ? 'permission_denied' : 'failed_precondition',
    `Cannot ${what}: ${errnoText(errno)}`,
    {
      cause: error,
      details: { errno },
    },
  );
}

interface Issue {
  path: string;
  message: string;
  code?: string;
  minimum?: number;
  maximum?: number;
}

/** A field that the API's schema refuses. */
function issueWords({ code, details }: CayError, flags?: readonly string[]): Words | undefined {
  if (code !== 'invalid_argument') return undefined;
  const issues = details['issues'];
  const [first] = Array.isArray(issues) ? (issues as Issue[]) : [];
  const path = first?.path ?? (Array.isArray(details['path']) ? details['path'].join('.') : undefined);
  if (path === undefined) return undefined;
  const flag = flagOf(path);
  if (!flag)
    return first && path !== '' ? { message: `The ${path} is not valid: ${first.message}` } : undefined;
  const [long, kind] = flag;
  // A verb without that flag takes the value as an argument.
  const name = flags === undefined || flags.includes(long) ? long : `The ${long.slice(2)}`;
  if (first?.code === 'too_small' && first.minimum !== undefined && kind !== 'text')
    return { message: `${name} must be at least ${valueText(first.minimum, kind)}` };
  if (first?.code === 'too_big' && first.maximum !== undefined && kind !== 'text')
    return { message: `${name} must be at most ${valueText(first.maximum, kind)}` };
  return first && { message: `${name} is not valid: ${first.message}` };
}

/** A message of the API about one field, with the flag in place of the field. */
export function withFlag(message: string, field: string): string {
  const flag = flagOf(field);
  return flag ? message.replace(`"${field}"`, flag[0]) : message;
}

function flagOf(path: string): readonly [flag: string, kind: Kind] | undefined {
  // Of `limits.memoryBytes` the last part says it, of `labels.some-key` the first.
  const parts = path.split('.');
  return FLAGS[parts.at(-1)!] ?? FLAGS[parts[0]!];
}

/** A limit above what the operator allows. */
function limitWords({ code, details }: CayError): Words | undefined {
  const { limit, asked, maximum } = details;
  if (code !== 'invalid_argument' || typeof limit !== 'string' || typeof maximum !== 'number')
    return undefined;
  const flag = FLAGS[limit];
  if (!flag) return undefined;
  const [name, kind] = flag;
  // The memory of a machine is no round number.
  const most = valueText(kind === 'size' && maximum > MiB ? maximum - (maximum % MiB) : maximum, kind);
  return {
    message:
      typeof asked === 'number'
        ? `${name} ${valueText(asked, kind)} is above the operator's maximum of ${most}`
        : `${name} has to be given: the operator's maximum is ${most}`,
    hint: `ask for at most ${most}; the operator sets the maximum with --max-limit of "cay up"`,
  };
}

/** A limit that the platform cannot enforce. */
function unenforcedWords({ code, message, details }: CayError): Words | undefined {
  const { limit } = details;
  const flag = typeof limit === 'string' ? FLAGS[limit] : undefined;
  if (code !== 'unsupported' || !flag) return undefined;
  return { message: withFlag(message, `limits.${String(limit)}`), hint: `leave out ${flag[0]}` };
}

function quotaWords({ code, details }: CayError): Words | undefined {
  const { quota, limit, used, asked } = details;
  const known = typeof quota === 'string' ? QUOTAS[quota] : undefined;
  if (!known || typeof limit !== 'number') return undefined;
  const [what, kind] = known;
  const text = (value: unknown) =>
    typeof value === 'number'
      ? kind === 'size'
        ? formatBytes(value)
        : String(value)
      : 'an unlimited amount';
  if (code === 'invalid_argument')
    return {
      message: `A quota of ${text(asked)} for ${what} is above the operator's maximum of ${text(limit)}`,
    };
  return {
    message: `The project's quota for ${what} is ${text(limit)}: ${text(used)} in use, ${text(asked)} more asked for`,
    hint: 'remove what is not needed or ask for less; an admin raises the quota with "cay quota set"',
  };
}

/** A sandbox that would have to run. */
function stateWords({ code, details }: CayError): Words | undefined {
  const { state, sandbox } = details;
  if (code !== 'failed_precondition' || (state !== 'stopped' && state !== 'failed')) return undefined;
  return { hint: `start it with "cay start ${typeof sandbox === 'string' ? sandbox : 'SANDBOX'}"` };
}

/** A mount of a volume that does not exist. */
function volumeWords({ code, details }: CayError): Words | undefined {
  const { what, volume } = details;
  if (code !== 'not_found' || what !== 'volume' || typeof volume !== 'string') return undefined;
  return { hint: `"cay volume create ${volume}" makes it, "cay volume ls" lists those that exist` };
}

function keyWords({ code }: CayError): Words | undefined {
  if (code !== 'unauthenticated') return undefined;
  return {
    hint: 'set CAY_API_KEY to a key of that server; on its machine "cay key create NAME" makes one',
  };
}

function listenWords({ details }: CayError): Words | undefined {
  if (details['unencrypted'] !== true) return undefined;
  return {
    hint: 'give --tls-cert and --tls-key, listen on 127.0.0.1 behind a proxy, or give --insecure',
  };
}

/** A server that cannot be reached. */
function reachWords(error: CayError): Words | undefined {
  const { cause, code, details } = error;
  const { url } = details;
  const errno = code === 'unavailable' ? errnoOf(cause) : undefined;
  // Others are unavailable too, such as the database of a server that is started here.
  if (errno === undefined || typeof url !== 'string') return undefined;
  return {
    message: `Cannot reach the server at ${url}: ${errnoText(errno)}`,
    hint: hintOfReach(errno, cause, url),
  };
}

/** How a server that speaks TLS answers without it. */
const SPEAKS_TLS = /^(?:ECONNRESET|EPIPE|UND_ERR_SOCKET|HPE_.*)$/;

function hintOfReach(errno: string, cause: unknown, url: string): string {
  if (url.startsWith('http:') && SPEAKS_TLS.test(errno))
    return 'if it speaks TLS, write https:// in --url or CAY_URL; "cay status" shows whether it runs';
  if (errno === 'ERR_TLS_CERT_ALTNAME_INVALID') return 'use a name of the certificate in --url or CAY_URL';
  const hint = reachHint(cause, '--url or CAY_URL');
  if (errno === 'ECONNREFUSED' || hint === undefined)
    return 'start it with "cay up", or check --url, CAY_URL and --data';
  return isUntrusted(cause) ? `${hint}; "cay cert" prints the file of its own` : hint;
}

function valueText(value: number, kind: Kind): string {
  if (kind === 'size') return formatSize(value);
  return kind === 'time' ? formatDuration(value) : String(value);
}
