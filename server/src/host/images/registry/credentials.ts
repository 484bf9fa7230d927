/**
 * The operator's credentials for registries, from a file in the form of Docker's `config.json`: `auths` with
 * a password or an identity token, `credHelpers` and `credsStore` with programs that give them. The file is
 * read when a registry asks for credentials, so that a changed one needs no restart. Nothing of it is logged
 * or becomes an argument of a program.
 */
import { readFile } from 'node:fs/promises';
import { CayError } from '@cay/sdk/protocol';
import { z } from 'zod';
import { run } from '../../../lib/run.ts';

export interface Credential {
  username: string;
  password: string;
  /** A token that is exchanged for others, in place of a password. */
  identityToken?: string;
}

export interface Credentials {
  /**
   * For `docker.io`, `host` or `host:port`. Nothing if the operator has none. Rejects `failed_precondition`.
   */
  of(registry: string): Promise<Credential | undefined>;
}

const HELPER = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/;
const HELPER_MS = 15_000;
const DOCKER_HUB = 'https://index.docker.io/v1/';

const FileSchema = z.object({
  auths: z
    .record(
      z.string(),
      z.object({
        auth: z.string().optional(),
        username: z.string().optional(),
        password: z.string().optional(),
        identitytoken: z.string().optional(),
      }),
    )
    .default({}),
  credHelpers: z.record(z.string(), z.string().regex(HELPER)).default({}),
  credsStore: z.string().regex(HELPER).optional(),
});
const AnswerSchema = z.object({ Username: z.string(), Secret: z.string() });

export const noCredentials: Credentials = { of: async () => undefined };

export function credentialsIn(file: string): Credentials {
  return {
    async of(registry) {
      const { auths, credHelpers, credsStore } = await read(file);
      const helper = find(credHelpers, registry) ?? credsStore;
      const asked = helper === undefined ? undefined : await ask(helper, keyOf(registry));
      return asked ?? plain(find(auths, registry));
    },
  };
}

async function read(file: string): Promise<z.infer<typeof FileSchema>> {
  try {
    return FileSchema.parse(JSON.parse(await readFile(file, 'utf8')));
  } catch (cause) {
    // What is in the file stays out of messages and causes.
    const { code } = cause as NodeJS.ErrnoException;
    throw new CayError('failed_precondition', `Cannot read the credentials for registries in "${file}"`, {
      hint: code === undefined ? 'it has to be as Docker writes its config.json' : `the system says ${code}`,
    });
  }
}

function keyOf(registry: string): string {
  return registry === 'docker.io' ? DOCKER_HUB : registry;
}

/** Keys may be hosts or URLs. */
function find<T>(entries: Record<string, T>, registry: string): T | undefined {
  const names =
    registry === 'docker.io' ? ['index.docker.io', 'docker.io', 'registry-1.docker.io'] : [registry];
  const key = Object.keys(entries).find((one) =>
    names.includes(
      one
        .replace(/^https?:\/\//, '')
        .replace(/\/.*$/, '')
        .toLowerCase(),
    ),
  );
  return key === undefined ? undefined : entries[key];
}

function plain(entry: z.infer<typeof FileSchema>['auths'][string] | undefined): Credential | undefined {
  if (!entry) return undefined;
  const decoded = Buffer.from(entry.auth ?? '', 'base64').toString('utf8');
  const colon = decoded.indexOf(':');
  const username = entry.username ?? decoded.slice(0, Math.max(colon, 0));
  const password = entry.password ?? decoded.slice(colon + 1);
  const { identitytoken } = entry;
  if (identitytoken) return { username, password: '', identityToken: identitytoken };
  return username === '' ? undefined : { username, password };
}

/** Nothing if the program knows no credential; a program that is missing is an error of the operator's. */
async function ask(helper: string, key: string): Promise<Credential | undefined> {
  const program = `docker-credential-${helper}`;
  let stdout: string;
  try {
    ({ stdout } = await run(program, ['get'], { stdin: key, timeoutMs: HELPER_MS }));
  } catch (error) {
    const { reason, exitCode } = error as { reason?: string; exitCode?: number | null };
    if (reason === 'exit' && exitCode === 1) return undefined;
    // Its output may hold a secret, so that it is no part of the message.
    throw new CayError('failed_precondition', `The credential helper "${program}" failed`, {
      hint: 'it has to be installed for the user that the server runs as',
    });
  }
  const answer = AnswerSchema.safeParse(safeJson(stdout));
  if (!answer.success)
    throw new CayError('failed_precondition', `The credential helper "${program}" gave no credential`);
  const { Username: username, Secret: secret } = answer.data;
  return username === '<token>'
    ? { username: '', password: '', identityToken: secret }
    : { username, password: secret };
}

function safeJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
