import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';

const HERE = JSON.stringify(join(import.meta.dirname, 'x')).slice(1, -2);

/** A server that fails as the path of the request says, with nothing but the last resort behind it. */
const PROGRAM = `
import { createServer } from 'node:http';
import { lastResort } from '${HERE}last-resort.ts';
import { inRequest } from '${HERE}current-request.ts';
const told = (word) => (error) => console.log(word, error.message);
lastResort({ onUnhandled: told('unhandled'), onFatal: told('fatal') });
const server = createServer((request, response) => {
  const fail = () => response.writeHead(500).end();
  inRequest({ fail }, () => {
    if (request.url === '/rejects') void (async () => { await null; throw new Error('rejected'); })();
    else if (request.url === '/throws') setTimeout(() => { throw new Error('thrown'); }, 5);
    else if (request.url === '/broken') setTimeout(() => { throw Object.assign(new Error('broken'), { code: 'ERR_INTERNAL_ASSERTION' }); });
    else response.end('alive');
  });
});
server.listen(0, '127.0.0.1', () => console.log('port', server.address().port));
`;

let child: ChildProcess | undefined;
afterEach(() => child?.kill('SIGKILL'));

async function start(): Promise<{ url: string; words: () => string }> {
  child = spawn(process.execPath, ['--input-type=module', '-e', PROGRAM], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let words = '';
  child.stdout!.on('data', (data: Buffer) => (words += data.toString()));
  while (!words.includes('\n')) await once(child.stdout!, 'data');
  return { url: `http://127.0.0.1:${/port (\d+)/.exec(words)![1]}`, words: () => words };
}

describe('a failure that nothing caught', () => {
  it.each([
    ['/rejects', 'unhandled rejected'],
    ['/throws', 'unhandled thrown'],
  ])('is told, answers its own request and no other (%s)', async (path, told) => {
    const { url, words } = await start();
    const others = Promise.all(Array.from({ length: 10 }, async () => (await fetch(`${url}/`)).text()));
    expect((await fetch(url + path, { signal: AbortSignal.timeout(10_000) })).status).toBe(500);
    expect(await others).toEqual(Array.from({ length: 10 }, () => 'alive'));
    expect(await (await fetch(`${url}/`)).text()).toBe('alive');
    expect(words()).toContain(told);
    expect(child!.exitCode).toBeNull();
  });

  it('of the process itself ends it', async () => {
    const { url, words } = await start();
    const exited = once(child!, 'exit');
    await fetch(`${url}/broken`).catch(() => {});
    expect((await exited)[0]).toBe(1);
    expect(words()).toContain('fatal broken');
  });
});
