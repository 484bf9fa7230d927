/**
 * A client verb starts in the time that its modules take to load, so it loads neither a server nor schemas.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';

const MAIN = join(import.meta.dirname, '../main.ts');
const TELL_MODULES = `data:text/javascript,${encodeURIComponent(`
  import { registerHooks } from 'node:module';
  registerHooks({ load(url, context, next) { console.error('loaded ' + url); return next(url, context); } });
`)}`;

async function loadedBy(...args: string[]): Promise<string[]> {
  const command = ['--import', TELL_MODULES, MAIN, ...args];
  const env = { ...process.env, CAY_URL: 'http://127.0.0.1:1', CAY_API_KEY: 'none' };
  // Nothing listens there, so that verbs that call the server fail after they have loaded all.
  const { stderr } = await promisify(execFile)(process.execPath, command, { env }).catch(
    (error: { stderr: string }) => error,
  );
  return [...stderr.matchAll(/^loaded (.*)$/gm)].map(([, url]) => url!);
}

describe('a client verb', () => {
  it.each(['--version', 'ls', 'exec box -- true', 'net show box'])(
    'cay %s loads no schemas, no server and no backend',
    async (line) => {
      const loaded = await loadedBy(...line.split(' '));
      expect(loaded.length).toBeGreaterThan(10);
      const heavy = loaded.filter((url) =>
        /\/zod\/|\/protocol\/index\.ts|\/(control|backends|api|host)\//.test(url),
      );
      expect(heavy).toEqual([]);
    },
  );
});
