/**
 * The SDK in a real browser: the sources as they are, types stripped, against a server that allows the page's
 * origin.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { stripTypeScriptTypes } from 'node:module';
import type { AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import { chromium, type Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { memoryServer, type MemoryServer } from '../support/memory-server.ts';

const CHROMIUM = '/usr/bin/chromium';
const reason = existsSync(CHROMIUM) ? undefined : `${CHROMIUM} is not installed`;
const ROOT = resolve(import.meta.dirname, '../..');
const PAGE =
  '<!doctype html><script type="importmap">{"imports":{"zod":"/node_modules/zod/index.js"}}</script>';

describe.skipIf(reason !== undefined)(`the SDK in a browser${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let sources: Server;
  let server: MemoryServer;
  let browser: Browser;
  let origin: string;

  beforeAll(async () => {
    sources = createServer((request, response) => {
      const path = new URL(request.url ?? '/', 'http://page').pathname;
      const file = join(ROOT, path);
      response.setHeader('content-type', path === '/' ? 'text/html' : 'text/javascript');
      if (path === '/') return response.end(PAGE);
      if (!existsSync(file)) return response.writeHead(404).end();
      const text = readFileSync(file, 'utf8');
      return response.end(file.endsWith('.ts') ? stripTypeScriptTypes(text) : text);
    });
    await new Promise<void>((done) => sources.listen(0, '127.0.0.1', done));
    origin = `http://127.0.0.1:${(sources.address() as AddressInfo).port}`;
    server = await memoryServer({ corsOrigins: [origin] });
    // Chromium cannot make its own sandbox as root; the flags keep it from calling home.
    const args = [
      '--no-sandbox',
      '--disable-gpu',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ];
    browser = await chromium.launch({ executablePath: CHROMIUM, args });
  });

  afterAll(async () => {
    await browser?.close();
    await server?.[Symbol.asyncDispose]();
    sources?.close();
  });

  it('creates a sandbox, runs commands, moves files and lists', async () => {
    const page = await browser.newPage();
    await page.goto(origin);
    await page.addScriptTag({
      type: 'module',
      content: "import * as sdk from '/sdk/src/index.ts'; globalThis.sdk = sdk;",
    });
    await page.waitForFunction('globalThis.sdk');
    const seen = await page.evaluate(
      async (options) => {
        const { Sandbox } = (globalThis as unknown as { sdk: typeof import('@cay/sdk') }).sdk;
        const sandbox = await Sandbox.create({}, options);
        const { stdout } = await sandbox.exec('echo from a browser');
        await sandbox.files.write('/home/user/a.txt', 'hello');
        const content = await sandbox.files.readText('/home/user/a.txt');
        const process = await sandbox.spawn(['cat'], { stdin: true });
        await process.write('typed');
        process.closeStdin();
        let echoed = '';
        for await (const { data } of process) echoed += new TextDecoder().decode(data);
        const { exitCode } = await process.wait();
        let listed = 0;
        for await (const { id } of Sandbox.list(options)) listed += id === sandbox.id ? 1 : 0;
        const error = await Sandbox.connect('nobody', options).then(
          () => 'none',
          ({ code }: { code: string }) => code,
        );
        await sandbox.kill();
        return { stdout, content, echoed, exitCode, listed, error };
      },
      { url: server.url, apiKey: server.apiKey },
    );
    expect(seen).toEqual({
      stdout: 'from a browser\n',
      content: 'hello',
      echoed: 'typed',
      exitCode: 0,
      listed: 1,
      error: 'not_found',
    });
  });

  it('refuses a page whose origin was not allowed', async () => {
    const page = await browser.newPage();
    await page.goto(origin.replace('127.0.0.1', 'localhost'));
    const answer = await page.evaluate(
      ({ url, apiKey }) =>
        fetch(`${url}/v1/sandboxes`, { headers: { 'x-api-key': apiKey } }).then(
          () => 'answered',
          () => 'refused',
        ),
      { url: server.url, apiKey: server.apiKey },
    );
    expect(answer).toBe('refused');
  });
});
