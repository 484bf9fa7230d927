/** Names of images: `python:3.12-slim`, `host:5000/team/tool@sha256:…`. */
import { CayError } from '@cay/sdk/protocol';

export interface ImageReference {
  /** Host and port of the registry, `docker.io` where the name has none. */
  registry: string;
  /** `library/python`. */
  repository: string;
  /** Absent where the name has a digest and no tag. */
  tag?: string;
  /** `sha256:` and 64 hexadecimal digits. */
  digest?: string;
}

const LONGEST = 512;
const LONGEST_REPOSITORY = 255;
const DEFAULT_REGISTRY = 'docker.io';
/** Other names of the same registry. */
const ALIASES = new Set(['index.docker.io', 'registry-1.docker.io', 'registry.hub.docker.com']);
const COMPONENT = /^[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*$/;
const HOST = /^(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::([0-9]{1,5}))?$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
export const DIGEST = /^sha256:[0-9a-f]{64}$/;

/** Throws `invalid_argument` for what is no name of an image. */
export function parseReference(text: string): ImageReference {
  const wrong = (why: string) =>
    new CayError('invalid_argument', `"${text.slice(0, 100)}" is not the name of an image: ${why}`, {
      hint: 'use a name such as "python:3.13-slim" or "registry.example.com/team/tool:1"',
    });
  if (text.length > LONGEST) throw wrong(`it is longer than ${LONGEST} characters`);
  const at = text.indexOf('@');
  const digest = at < 0 ? undefined : text.slice(at + 1);
  if (digest !== undefined && !DIGEST.test(digest)) throw wrong('what follows "@" is not a SHA-256 digest');
  const named = at < 0 ? text : text.slice(0, at);
  const colon = named.lastIndexOf(':');
  const tagged = colon > named.lastIndexOf('/');
  const tag = tagged ? named.slice(colon + 1) : undefined;
  if (tag !== undefined && !TAG.test(tag)) throw wrong(`"${tag.slice(0, 50)}" is not a tag`);
  const { registry, repository } = splitRegistry(tagged ? named.slice(0, colon) : named);
  const port = HOST.exec(registry)?.[1];
  if (!HOST.test(registry) || registry.includes('..') || (port !== undefined && Number(port) > 65_535))
    throw wrong(`"${registry.slice(0, 50)}" is not a registry`);
  if (repository.length > LONGEST_REPOSITORY) throw wrong('its repository is too long');
  if (!repository.split('/').every((part) => COMPONENT.test(part)))
    throw wrong(`"${repository.slice(0, 50)}" is not a repository`);
  return {
    registry,
    repository,
    ...(tag === undefined && digest === undefined ? { tag: 'latest' } : tag !== undefined && { tag }),
    ...(digest !== undefined && { digest }),
  };
}

/** Whether the first part of a name with several is a registry. */
function isHost(first: string): boolean {
  return /[.:[]/.test(first) || first === 'localhost' || first !== first.toLowerCase();
}

function splitRegistry(name: string): { registry: string; repository: string } {
  const slash = name.indexOf('/');
  const first = slash < 0 ? '' : name.slice(0, slash);
  const registry = (isHost(first) ? first : DEFAULT_REGISTRY).toLowerCase();
  const repository = isHost(first) ? name.slice(slash + 1) : name;
  if (registry !== DEFAULT_REGISTRY && !ALIASES.has(registry)) return { registry, repository };
  return {
    registry: DEFAULT_REGISTRY,
    repository: repository.includes('/') ? repository : `library/${repository}`,
  };
}

/** In full: `docker.io/library/python:3.12-slim`. The same image has the same text. */
export function canonicalName({ registry, repository, tag, digest }: ImageReference): string {
  return `${registry}/${repository}${suffix(tag, digest)}`;
}

/** As people write it: `python:3.12-slim`. */
export function familiarName({ registry, repository, tag, digest }: ImageReference): string {
  const short = registry !== DEFAULT_REGISTRY ? `${registry}/${repository}` : shortest(repository);
  return `${short}${suffix(tag, digest)}`;
}

/** `library/a` without its beginning, unless what is left would be read as something else. */
function shortest(repository: string): string {
  const [first = '', ...rest] = repository.split('/');
  if (first === 'library' && rest.length === 1) return rest[0]!;
  return isHost(first) ? `${DEFAULT_REGISTRY}/${repository}` : repository;
}

/** Without its digest, or nothing if it has no tag. */
export function taggedPart(reference: ImageReference): ImageReference | undefined {
  const { digest: _digest, ...tagged } = reference;
  return tagged.tag === undefined ? undefined : tagged;
}

function suffix(tag: string | undefined, digest: string | undefined): string {
  return `${tag === undefined ? '' : `:${tag}`}${digest === undefined ? '' : `@${digest}`}`;
}
