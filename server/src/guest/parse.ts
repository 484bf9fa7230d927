/**
 * Validates messages of a guest, by hand because this is on the hot path. Each function throws a `violation`,
 * which closes the connection.
 *
 * Names and paths that are not UTF-8 arrive as byte strings and are decoded with U+FFFD for invalid bytes:
 * fit to be shown, not to be sent back.
 */
import { Buffer } from 'node:buffer';
import { CayError, FILE_TYPES, SIGNALS, isErrorCode } from '@cay/sdk/protocol';
import type { CommandEnd, CommandInfo, FileEvent, FileInfo } from '@cay/sdk/protocol';
import type { CborMap, CborValue } from './cbor.ts';
import { PROTOCOL } from './frame.ts';
import type { ListeningPort } from './guest.ts';
import { violation } from './violation.ts';

const MAX_NAME = 1024;
/** Not the kernel's 4096: a listing goes deeper than a path can be opened. */
const MAX_PATH = 262_144;
const MAX_U32 = 0xffff_ffff;
const MAX_INT = Number.MAX_SAFE_INTEGER;

const lossy = new TextDecoder('utf-8', { ignoreBOM: true });

export function int(map: CborMap, key: string, min = 0, max = MAX_INT): number {
  const value = map[key];
  if (typeof value !== 'number' || value < min || value > max)
    throw violation(`"${key}" is not an integer from ${min} to ${max}`);
  return value;
}

export function bool(map: CborMap, key: string): boolean {
  const value = map[key];
  if (typeof value !== 'boolean') throw violation(`"${key}" is not true or false`);
  return value;
}

function text(map: CborMap, key: string, max: number): string {
  const value = map[key];
  if (typeof value !== 'string' || value.length > max)
    throw violation(`"${key}" is not a text of at most ${max} characters`);
  return value;
}

/** Text, or bytes that are decoded as text. */
function name(value: CborValue | undefined, what: string, max: number): string {
  if ((typeof value !== 'string' && !(value instanceof Uint8Array)) || value.length > max) {
    throw violation(`"${what}" is not a name of at most ${max} bytes`);
  }
  return typeof value === 'string' ? value : lossy.decode(value);
}

function array(map: CborMap, key: string, max: number): CborValue[] {
  const value = map[key];
  if (!Array.isArray(value) || value.length > max)
    throw violation(`"${key}" is not an array of at most ${max} items`);
  return value;
}

function asMap(value: CborValue | undefined, what: string): CborMap {
  if (value === null || typeof value !== 'object' || Array.isArray(value) || value instanceof Uint8Array) {
    throw violation(`"${what}" is not a map`);
  }
  return value;
}

export interface GuestHello {
  version: string;
  /** 16 random bytes in hex, made when the guest was started. */
  boot: string;
  features: string[];
}

export function parseHello(map: CborMap): GuestHello {
  const protocol = int(map, 'protocol');
  if (protocol !== PROTOCOL) {
    throw new CayError(
      'unsupported',
      `The guest speaks version ${protocol} of the protocol, the server version ${PROTOCOL}`,
    );
  }
  const boot = map['boot'];
  if (!(boot instanceof Uint8Array) || boot.length !== 16) throw violation('"boot" is not 16 bytes');
  const features = map['features'] === undefined ? [] : array(map, 'features', 64);
  return {
    version: text(map, 'version', 64),
    boot: Buffer.from(boot).toString('hex'),
    features: features.map((feature) => text({ feature }, 'feature', 64)),
  };
}

/** An error that the guest reports. Only small plain details are kept; an unknown code becomes `internal`. */
export function parseReset(map: CborMap): CayError {
  const code = isErrorCode(map['code']) ? map['code'] : 'internal';
  const message =
    typeof map['message'] === 'string' ? map['message'].slice(0, 4096) : 'The guest gave no reason';
  const details: Record<string, unknown> = {};
  if (map['details'] !== undefined && map['details'] !== null) {
    for (const [key, value] of Object.entries(asMap(map['details'], 'details')).slice(0, 16)) {
      const plain = isPlain(value) || (Array.isArray(value) && value.length <= 100 && value.every(isPlain));
      if (plain && /^[A-Za-z][A-Za-z0-9]{0,63}$/.test(key)) details[key] = value;
    }
  }
  return new CayError(code, message, { details });
}

const isPlain = (value: CborValue | undefined) =>
  typeof value === 'number' ||
  typeof value === 'boolean' ||
  (typeof value === 'string' && value.length <= 4096);

export function parseFileInfo(value: CborValue | undefined): FileInfo {
  const map = asMap(value, 'info');
  const type = map['type'] as FileInfo['type']; // looked up in the next line
  if (!FILE_TYPES.includes(type)) throw violation('"type" is not a type of file');
  const target = map['target'];
  return {
    name: name(map['name'], 'name', MAX_NAME),
    path: name(map['path'], 'path', MAX_PATH),
    type,
    sizeBytes: int(map, 'size'),
    mode: int(map, 'mode', 0, 0o7777),
    uid: int(map, 'uid', 0, MAX_U32),
    gid: int(map, 'gid', 0, MAX_U32),
    modifiedAtMs: int(map, 'mtimeMs', -MAX_INT),
    ...(target !== undefined && target !== null && { target: name(target, 'target', MAX_PATH) }),
  };
}

export function parseEntries(map: CborMap): FileInfo[] {
  return array(map, 'entries', 256).map(parseFileInfo);
}

const EVENT_TYPES: readonly FileEvent['type'][] = [
  'created',
  'modified',
  'removed',
  'renamed',
  'attributes',
  'overflow',
];

export function parseFileEvents(map: CborMap): FileEvent[] {
  return array(map, 'events', 65_536).map((value) => {
    const event = asMap(value, 'event');
    const type = event['type'] as FileEvent['type']; // looked up in the next line
    if (!EVENT_TYPES.includes(type)) throw violation('"type" is not a type of event');
    return { type, path: name(event['path'], 'path', MAX_PATH) };
  });
}

export function parseXattrs(map: CborMap): Record<string, Uint8Array> {
  const attrs: [string, Uint8Array][] = [];
  for (const [key, value] of Object.entries(asMap(map['attrs'], 'attrs'))) {
    if (key.length > MAX_NAME) throw violation('the name of an attribute is too long');
    if (typeof value !== 'string' && !(value instanceof Uint8Array))
      throw violation('the value of an attribute is not bytes');
    attrs.push([key, typeof value === 'string' ? new TextEncoder().encode(value) : new Uint8Array(value)]);
  }
  return Object.fromEntries(attrs);
}

export function parsePorts(map: CborMap, key: 'opened' | 'closed'): ListeningPort[] {
  if (map[key] === undefined) return [];
  return array(map, key, 65_536).map((value) => {
    const port = asMap(value, 'port');
    return { port: int(port, 'port', 1, 65_535), address: text(port, 'address', 64) };
  });
}

const SIGNAL_NAMES = new Map<number, string>(
  Object.entries(SIGNALS).map(([signal, number]) => [number, signal]),
);

export function parseEnd(map: CborMap): CommandEnd {
  switch (map['kind']) {
    case 'exited':
      return { kind: 'exited', exitCode: int(map, 'code', 0, 255) };
    case 'signalled': {
      const number = int(map, 'signal', 1, 64);
      return {
        kind: 'signalled',
        signal: SIGNAL_NAMES.get(number) ?? (number < 34 ? `SIG${number}` : `SIGRTMIN+${number - 34}`),
      };
    }
    case 'timed_out':
    case 'oom_killed':
      return { kind: map['kind'] };
    default:
      throw violation('"kind" is not a way to end');
  }
}

const MAX_ENVIRON = 65_536;

/** Variables as `NAME=value`. */
export function parseEnvironment(map: CborMap): string[] {
  return name(map['environ'], 'environ', MAX_ENVIRON)
    .split('\0')
    .filter((line) => line.includes('='));
}

export function parseCommands(map: CborMap): CommandInfo[] {
  return array(map, 'commands', 65_536).map((value) => {
    const command = asMap(value, 'command');
    const outputBytes = int(command, 'outputBytes');
    return {
      id: text(command, 'id', 128),
      pid: int(command, 'pid', 0, MAX_U32),
      argv: array(command, 'argv', 65_536).map((argument) => name(argument, 'argv', 1024 * 1024)),
      pty: bool(command, 'pty'),
      startedAtMs: int(command, 'startedAtMs'),
      ...(command['kind'] !== undefined && command['kind'] !== null && { end: parseEnd(command) }),
      outputBytes,
      keptFrom: int(command, 'keptFrom', 0, outputBytes),
    };
  });
}
