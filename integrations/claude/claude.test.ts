import Anthropic from '@anthropic-ai/sdk';
import { query } from '@anthropic-ai/claude-agent-sdk';
import { Sandbox } from '@cay/sdk';
import { mkdtempSync, rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { liveServer, type LiveServer } from '../../test/support/live-server.ts';
import { cayToolset, spawnClaudeCode } from './index.ts';
import { managedAgents } from './testing/managed-agents.ts';

let server: LiveServer;
let access: { url: string; apiKey: string };
let workdir: string;
beforeAll(async () => {
  server = await liveServer({ CAY_RUNTIME: 'runc' });
  access = { url: server.url, apiKey: server.apiKey };
  workdir = mkdtempSync('/tmp/cay-claude-');
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  rmSync(workdir, { recursive: true, force: true });
});

describe('Claude Managed Agents', () => {
  it(
    'the official worker serves a session in a sandbox, and no key is in it',
    { timeout: 60_000 },
    async () => {
      await using service = await managedAgents([
        ['bash', { command: 'cd /tmp && export A=kept && echo first; exit 3' }],
        ['bash', { command: 'echo "$A $PWD"' }],
        ['write', { file_path: 'notes/a.txt', content: 'one\ntwo\nthree\n' }],
        ['edit', { file_path: 'notes/a.txt', old_string: 'two', new_string: '2' }],
        ['read', { file_path: 'notes/a.txt', view_range: [2, 2] }],
        ['glob', { pattern: '**/*.txt' }],
        ['grep', { pattern: 'thr.e' }],
        ['read', { file_path: 'none.txt' }],
        ['bash', { command: 'sleep 30', timeout_ms: 300 }],
        ['bash', { command: 'env; cat /proc/*/environ 2>/dev/null' }],
      ]);
      const client = new Anthropic({ baseURL: service.url, apiKey: null, authToken: null });
      const stop = new AbortController();
      const worker = client.beta.environments.work.worker({
        environmentId: 'env_1',
        environmentKey: service.environmentKey,
        workdir,
        tools: cayToolset(access),
        memorySyncIntervalMs: null,
        maxIdleMs: 30_000,
        signal: stop.signal,
      });
      const running = worker.run().catch((error: unknown) => {
        if (!stop.signal.aborted) throw error;
      });
      const results = await service.results;
      await expect.poll(() => service.stopped, { timeout: 20_000 }).toEqual(['work_1']);
      stop.abort();
      await running;
      const told = results.map(({ isError, text }) => `${isError ? 'error: ' : ''}${text}`);
      expect(told[0]).toContain('first');
      expect(told[1]).toContain('kept /tmp');
      expect(told[2]).not.toContain('error:');
      expect(told[4]).toContain('2');
      expect(told[4]).not.toContain('three');
      expect(told[5]).toContain('a.txt');
      expect(told[6]).toContain('three');
      expect(told[7]).toMatch(/^error: .*none\.txt/s);
      expect(told[8]).toMatch(/^error: .*ended after 300 ms/s);
      expect(told[9]).not.toContain(service.environmentKey);
      expect(told[9]).not.toContain(service.sessionsToken);
      const made = [];
      for await (const sandbox of Sandbox.list({ ...access, labels: { 'claude.session': 'sesn_1' } }))
        made.push(sandbox);
      expect(made.map(({ info }) => info.state)).toEqual(['paused']);
      // The session is served again, by whichever worker: the same sandbox goes on.
      expect(await made[0]!.files.readText('notes/a.txt')).toBe('one\n2\nthree\n');
      await made[0]!.kill();
    },
  );
});

describe('the Claude Agent SDK', () => {
  it('runs its process in a sandbox', { timeout: 60_000 }, async () => {
    const sandbox = await Sandbox.create({}, access);
    // A program that speaks the protocol of Claude Code, in its place: the real one needs an account.
    await sandbox.files.write(
      'bin/claude',
      `#!/usr/bin/env python3
import json, os, socket, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "control_request":
        answer = {"subtype": "success", "request_id": message["request_id"], "response": {"commands": [], "models": [], "account": {}, "output_style": "default", "available_output_styles": []}}
        print(json.dumps({"type": "control_response", "response": answer}), flush=True)
    elif message["type"] == "user":
        said = json.dumps([os.getcwd(), os.environ.get("ONLY"), os.environ.get("CAY_TEST_HOST"), message["message"]["content"]])
        print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": said, "session_id": "s", "uuid": "u", "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "total_cost_usd": 0, "usage": {}, "modelUsage": {}, "permission_denials": []}), flush=True)
        break
`,
      { mode: 0o755 },
    );
    process.env['CAY_TEST_HOST'] = 'a variable of this machine';
    const results = [];
    for await (const message of query({
      prompt: 'Where are you?',
      options: {
        cwd: '/home/user',
        pathToClaudeCodeExecutable: '/nowhere/claude',
        spawnClaudeCodeProcess: spawnClaudeCode(sandbox, {
          command: '/home/user/bin/claude',
          set: { ONLY: 'set' },
        }),
      },
    }))
      if (message.type === 'result') results.push(message);
    expect(results).toHaveLength(1);
    const [cwd, only, host, prompt] = JSON.parse((results[0] as { result: string }).result) as string[];
    expect([cwd, only, host]).toEqual(['/home/user', 'set', null]);
    expect(JSON.stringify(prompt)).toContain('Where are you?');
    await sandbox.kill();
  });
});
