/** Adapters that others wrote for E2B, unmodified, against a live server. */
import { functionCall, ScriptedModel, assistantMessage } from '@openai/agents-core/testing';
import { Runner } from '@openai/agents';
import { SandboxAgent } from '@openai/agents/sandbox';
import { E2BSandboxClient } from '@openai/agents-extensions/sandbox/e2b';
import { e2b } from '@computesdk/e2b';
import { Workspace } from '@mastra/core/workspace';
import { E2BSandbox } from '@mastra/e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { liveServer, type LiveServer } from '../../test/support/live-server.ts';

let server: LiveServer;
beforeAll(async () => {
  server = await liveServer({ CAY_RUNTIME: 'runsc' });
  Object.assign(process.env, server.env);
});
afterAll(() => server?.[Symbol.asyncDispose]());

describe('ComputeSDK: @computesdk/e2b', () => {
  it('creates, runs, has files and snapshots, and kills', async () => {
    const compute = e2b({ apiKey: server.apiKey });
    const sandbox = await compute.sandbox.create();
    expect(await sandbox.runCommand('echo "$WHO"; exit 3', { env: { WHO: 'me' } })).toMatchObject({
      exitCode: 3,
    });
    await sandbox.filesystem.writeFile('/home/user/notes/a.txt', 'hello');
    expect(await sandbox.filesystem.readFile('/home/user/notes/a.txt')).toBe('hello');
    expect((await sandbox.filesystem.readdir('/home/user/notes')).map(({ name }) => name)).toEqual(['a.txt']);
    expect(await sandbox.filesystem.exists('/home/user/b.txt')).toBe(false);
    const { id } = await compute.snapshot!.create(sandbox.sandboxId, { name: 'kept' });
    const copy = await compute.sandbox.create({ snapshotId: id });
    expect(await copy.filesystem.readFile('/home/user/notes/a.txt')).toBe('hello');
    expect((await compute.sandbox.list()).length).toBe(2);
    await copy.destroy();
    await sandbox.destroy();
    expect(await compute.sandbox.getById(sandbox.sandboxId)).toBeNull();
  });
});

describe('Mastra: @mastra/e2b', () => {
  it('starts, runs, has processes, stops with memory, and destroys', async () => {
    const sandbox = new E2BSandbox({ id: 'mastra-box', template: 'base', apiUrl: server.url });
    const workspace = new Workspace({ sandbox });
    await workspace.init();
    expect(await sandbox.executeCommand!('echo', ['a b'])).toMatchObject({ exitCode: 0, stdout: 'a b\n' });
    expect(await sandbox.executeCommand!('sh', ['-c', 'exit 4'])).toMatchObject({ exitCode: 4 });
    const handle = await sandbox.processes.spawn('read line; echo "got $line"');
    await handle.sendStdin('one\n');
    expect(await handle.wait()).toMatchObject({ exitCode: 0, stdout: 'got one\n' });
    await sandbox.e2b.files.write('/home/user/kept.txt', 'kept');
    await sandbox.stop();
    const again = new E2BSandbox({ id: 'mastra-box', template: 'base', apiUrl: server.url });
    await again.start();
    expect((await again.executeCommand!('cat', ['/home/user/kept.txt'])).stdout).toBe('kept');
    await again.destroy();
  });
});

describe('OpenAI Agents JS: @openai/agents-extensions/sandbox/e2b', () => {
  it('carries a scripted agent from end to end', async () => {
    const model = new ScriptedModel([
      [
        functionCall(
          'exec_command',
          { cmd: 'echo $((6 * 7)) > answer.txt && cat answer.txt' },
          { callId: 'c1' },
        ),
      ],
      [assistantMessage('It is 42')],
    ]);
    const agent = new SandboxAgent({ name: 'worker', instructions: 'Compute.', model });
    const client = new E2BSandboxClient();
    const result = await new Runner({ tracingDisabled: true }).run(agent, 'What is 6 * 7?', {
      sandbox: { client },
    });
    expect(result.finalOutput).toBe('It is 42');
    expect(JSON.stringify(model.lastCall!.request.input)).toContain('42');
  });

  it('keeps a workspace, and resumes it', async () => {
    const client = new E2BSandboxClient({ workspacePersistence: 'tar' });
    const session = await client.create();
    try {
      await session.createEditor!().createFile!({ type: 'create_file', path: 'a.txt', diff: '+hello' });
      expect(new TextDecoder().decode((await session.readFile!({ path: 'a.txt' })) as Uint8Array)).toContain(
        'hello',
      );
      expect(await session.execCommand!({ cmd: 'exit 5' })).toContain('exited with code 5');
      expect((await session.persistWorkspace!()).byteLength).toBeGreaterThan(0);
    } finally {
      await session.delete!();
    }
  });
});
