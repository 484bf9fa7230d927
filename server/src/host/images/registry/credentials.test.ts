import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { parseChallenge } from './challenge.ts';
import { credentialsIn } from './credentials.ts';

const dir = mkdtempSync(join(tmpdir(), 'cay-credentials-'));
const path = process.env['PATH'];
process.env['PATH'] = `${dir}:${path}`;
afterAll(() => {
  process.env['PATH'] = path;
  rmSync(dir, { recursive: true, force: true });
});
const file = join(dir, 'config.json');
const given = (config: unknown) => {
  writeFileSync(file, typeof config === 'string' ? config : JSON.stringify(config));
  return credentialsIn(file);
};
const base64 = (text: string) => Buffer.from(text).toString('base64');

describe('credentialsIn()', () => {
  it('finds passwords and identity tokens by host', async () => {
    const credentials = given({
      auths: {
        'https://index.docker.io/v1/': { auth: base64('hub:pass:word') },
        'host:5000': { username: 'me', password: 'p' },
        'tokens.example.com': { auth: base64('x:'), identitytoken: 'long' },
      },
    });
    expect(await credentials.of('docker.io')).toEqual({ username: 'hub', password: 'pass:word' });
    expect(await credentials.of('host:5000')).toEqual({ username: 'me', password: 'p' });
    expect(await credentials.of('tokens.example.com')).toMatchObject({ identityToken: 'long' });
    expect(await credentials.of('host')).toBeUndefined();
  });

  it('asks helpers, which know or do not', async () => {
    const script = `#!/bin/sh
read -r host
case "$host" in
  known.example.com) echo '{"Username":"u","Secret":"s"}';;
  token.example.com) echo '{"Username":"<token>","Secret":"t"}';;
  *) echo 'credentials not found' ; exit 1;;
esac
`;
    writeFileSync(join(dir, 'docker-credential-tried'), script, { mode: 0o755 });
    const credentials = given({
      credsStore: 'tried',
      auths: { 'plain.example.com': { auth: base64('a:b') } },
      credHelpers: { 'other.example.com': 'missing-program' },
    });
    expect(await credentials.of('known.example.com')).toEqual({ username: 'u', password: 's' });
    expect(await credentials.of('token.example.com')).toMatchObject({ identityToken: 't' });
    expect(await credentials.of('plain.example.com')).toEqual({ username: 'a', password: 'b' });
    await expect(credentials.of('other.example.com')).rejects.toMatchObject({ code: 'failed_precondition' });
  });

  it('says nothing of what is in a file that it cannot read', async () => {
    const failure = await given('{"auths": "secret')
      .of('x')
      .catch((error: Error) => error);
    expect(failure).toMatchObject({ code: 'failed_precondition' });
    expect(JSON.stringify(failure) + String((failure as Error).cause)).not.toContain('secret');
    await expect(given({ credsStore: '../../evil' }).of('x')).rejects.toMatchObject({
      code: 'failed_precondition',
    });
  });
});

describe('parseChallenge()', () => {
  it('reads what registries send', () => {
    expect(
      parseChallenge(
        'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="a:b,c"',
      ),
    ).toEqual({
      scheme: 'bearer',
      parameters: { realm: 'https://auth.docker.io/token', service: 'registry.docker.io', scope: 'a:b,c' },
    });
    expect(parseChallenge('Basic realm="x"')).toMatchObject({ scheme: 'basic' });
    expect(parseChallenge('Basic realm="x", Bearer realm="y"')).toMatchObject({
      scheme: 'bearer',
      parameters: { realm: 'y' },
    });
    expect(parseChallenge('Negotiate')).toBeUndefined();
    expect(parseChallenge(undefined)).toBeUndefined();
  });

  it('takes any header, in little time', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 9000 }), (text) => {
        parseChallenge(`Bearer ${text}`);
      }),
    );
    const from = performance.now();
    parseChallenge(`Bearer a="${'\\'.repeat(8000)}`);
    parseChallenge(`Bearer ${'a=,'.repeat(2500)}`);
    expect(performance.now() - from).toBeLessThan(1000);
  });
});
