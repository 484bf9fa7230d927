/** The sentences of the five systems, as cases, against a server on any backend. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { asyncBackend } from '../../sdk/src/compat/async-backend.ts';
import { sandboxControl } from '../../sdk/src/compat/control.ts';
import { hostErrorName, sandboxHost } from '../../sdk/src/compat/host.ts';
import { sandboxOrchestrator } from '../../sdk/src/compat/orchestrator.ts';
import { runtime as openRuntime } from '../../sdk/src/compat/runtime.ts';
import { isCayError } from '@cay/sdk/protocol';

export interface CompatServer extends AsyncDisposable {
  url: string;
  apiKey: string;
}

interface Abilities {
  snapshots: boolean;
  /** Real programs, of which one can listen on a port. */
  processes: boolean;
  resize: boolean;
}

const refused = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  );
const until = async (holds: () => Promise<boolean>) => {
  for (const end = Date.now() + 20_000; !(await holds());) {
    if (Date.now() > end) throw new Error(`It did not become true: ${holds.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};

export function compatSuite(name: string, open: () => Promise<CompatServer>, can: Abilities): void {
  describe(`the five systems' words on ${name}`, () => {
    let server: CompatServer;
    beforeAll(async () => void (server = await open()), 240_000);
    afterAll(() => server?.[Symbol.asyncDispose]());
    const access = () => ({ url: server.url, apiKey: server.apiKey });

    describe('orchestrator', () => {
      it('claims, streams logs, waits for completion and releases', async () => {
        const orchestrator = sandboxOrchestrator(access());
        const { id, uid } = await orchestrator.claim({ cmd: ['sh', '-c', 'echo out; echo err >&2'] });
        expect(uid).toBeTruthy();
        expect(await orchestrator.findPod(id)).toBe(uid);
        expect(await orchestrator.waitForCompletion(id)).toMatchObject({
          phase: 'Succeeded',
          complete: true,
          succeeded: 1,
          failed: 0,
        });
        const chunks: Record<string, string> = { stdout: '', stderr: '' };
        await orchestrator.streamLogs(id, (stream, text) => void (chunks[stream] += text));
        expect(chunks).toEqual({ stdout: 'out\n', stderr: 'err\n' });
        await orchestrator.release(id);
        await orchestrator.release(id);
        expect(isCayError(await refused(orchestrator.getStatus(id)), 'not_found')).toBe(true);
      });

      it('tells Running, Failed, and a time that was up from each other', async () => {
        const orchestrator = sandboxOrchestrator(access());
        const { id } = await orchestrator.claim({ cmd: ['sh', '-c', 'sleep 1; exit 3'] });
        expect(await orchestrator.getStatus(id)).toMatchObject({
          phase: 'Running',
          complete: false,
          active: 1,
        });
        const late = await refused(orchestrator.waitForCompletion(id, { timeoutMs: 1 }));
        expect(isCayError(late, 'deadline_exceeded')).toBe(true);
        expect(await orchestrator.waitForCompletion(id)).toMatchObject({ phase: 'Failed', failed: 1 });
        await orchestrator.release(id);
      });

      it('claims once for one key, pauses and resumes', async () => {
        const orchestrator = sandboxOrchestrator(access());
        const key = `claim-${Date.now()}`;
        const first = await orchestrator.claim({}, { idempotencyKey: key });
        expect(await orchestrator.claim({}, { idempotencyKey: key })).toEqual(first);
        await orchestrator.pause(first.id);
        expect((await orchestrator.getStatus(first.id)).phase).toBe('Running');
        await orchestrator.resume(first.id);
        await orchestrator.release(first.id);
        expect(await refused(orchestrator.findPod(first.id))).toBeDefined();
      });
    });

    describe('control', () => {
      it('creates with labels and capabilities, pauses, resumes and destroys', async () => {
        const control = sandboxControl(access());
        const made = await control.createSandbox({ labels: { team: 'a' } });
        expect(Object.keys(made.capabilities).sort()).toEqual([
          'concurrentSandboxes',
          'deepPause',
          'launchProcess',
          'maxSandboxDuration',
          'pause',
          'rollback',
          'snapshots',
        ]);
        expect(made.capabilities).toMatchObject({ snapshots: can.snapshots, rollback: can.snapshots });
        expect(made.capabilities.concurrentSandboxes).toBeGreaterThan(0);
        expect(made.address).toMatch(/:\d+$/);
        await control.pauseSandbox(made.sandboxId);
        await control.resumeSandbox(made.sandboxId);
        await control.destroySandbox(made.sandboxId);
        await control.destroySandbox(made.sandboxId);
      });

      it('launches, reports and kills processes', async () => {
        const control = sandboxControl(access());
        const { sandboxId } = await control.createSandbox();
        const { processId, status } = await control.launchProcess({
          sandboxId,
          binary: 'sleep',
          args: ['60'],
        });
        expect(status).toBe('running');
        await control.killProcess({ sandboxId, processId });
        await until(
          async () => (await control.getProcessStatus({ sandboxId, processId })).status === 'exited',
        );
        expect((await control.getProcessStatus({ sandboxId, processId })).exitCode).toBe(143);
        await control.killProcess({ sandboxId, processId });
        await control.destroySandbox(sandboxId);
      });

      it.runIf(can.processes)('is starting until its port listens', async () => {
        const control = sandboxControl(access());
        const { sandboxId } = await control.createSandbox();
        const { processId, status, address, token } = await control.launchProcess({
          sandboxId,
          binary: 'sh',
          args: ['-c', 'sleep 1; exec python3 -m http.server 8000'],
          exposePort: 8000,
        });
        expect(status).toBe('starting');
        expect(address && token).toBeTruthy();
        const ask = { sandboxId, processId, exposePort: 8000 };
        await until(async () => (await control.getProcessStatus(ask)).status === 'running');
        await control.destroySandbox(sandboxId);
      });
    });

    describe('host', () => {
      const session = `session-${name.replaceAll(/[^a-z0-9]/g, '')}`;

      it('creates a session once, executes tools, and destroys it', async () => {
        const host = sandboxHost(access());
        await host.createSession({ sessionId: session, labels: { a: 'b' } });
        const twice = await refused(host.createSession({ sessionId: session }));
        expect(hostErrorName(twice)).toBe('ErrSessionExists');
        expect(await host.getSession(session)).toMatchObject({
          state: 'active',
          turnCount: 0,
          labels: { a: 'b' },
        });
        const written = { file_path: '/home/user/a.txt', content: 'one\n' };
        await host.executeTool({ sessionId: session, toolName: 'write', params: written });
        const append = {
          sessionId: session,
          toolName: 'bash',
          toolCallId: 'c1',
          params: { command: 'echo x >> n' },
        };
        for (let sent = 0; sent < 2; sent++)
          expect(await host.executeTool(append)).toMatchObject({ exitCode: 0, tier: 2, isError: false });
        const read = { sessionId: session, toolName: 'bash', params: { command: 'cat n' } };
        expect((await host.executeTool(read)).content).toBe('x');
        expect((await host.listSessions()).map(({ sessionId }) => sessionId)).toContain(session);
        expect((await host.healthCheck()).checks.length).toBeGreaterThan(0);
        await host.destroySession(session);
        expect(hostErrorName(await refused(host.getSession(session)))).toBe('ErrSessionNotFound');
      });

      it.runIf(can.snapshots)(
        'numbers turns, rolls back without destroying, and never reuses a number',
        async () => {
          const host = sandboxHost(access());
          const id = `${session}-turns`;
          await host.createSession({ sessionId: id });
          const write = (content: string) =>
            host.executeTool({
              sessionId: id,
              toolName: 'write',
              params: { file_path: '/home/user/a', content },
            });
          await write('one');
          expect(await host.turnComplete(id)).toMatchObject({ turnNumber: 1 });
          await write('two');
          expect(await host.turnComplete(id)).toMatchObject({ turnNumber: 2 });
          const kept = await host.createSnapshot(id, 'kept');
          await host.rollbackSession(id, 1);
          expect((await host.turnComplete(id)).turnNumber).toBe(3);
          const all = await host.listSnapshots(id);
          expect(
            all.filter(({ isTurnSnapshot }) => isTurnSnapshot).map(({ turnNumber }) => turnNumber),
          ).toEqual([3, 2, 1]);
          expect(all.map(({ snapshotId }) => snapshotId)).toContain(kept.snapshotId);
          expect((await host.pauseSession(id, 0)).state).toBe('paused');
          expect((await host.resumeSession(id)).state).toBe('active');
          await host.destroySession(id);
        },
      );

      it.runIf(can.snapshots && can.processes)('refuses a rollback while tools are in flight', async () => {
        const host = sandboxHost(access());
        const id = `${session}-busy`;
        await host.createSession({ sessionId: id });
        await host.turnComplete(id);
        const slow = host.executeTool({
          sessionId: id,
          toolName: 'bash',
          params: { command: 'touch begun; sleep 3' },
        });
        const runtime = openRuntime(access());
        await until(async () => (await runtime.exec(id, 'test -e begun')).exitCode === 0);
        expect(hostErrorName(await refused(host.rollbackSession(id, 1)))).toBe('ErrToolsInFlight');
        await slow;
        await host.destroySession(id);
      });

      it.runIf(!can.snapshots)('says that snapshots are not available', async () => {
        const host = sandboxHost(access());
        const id = `${session}-none`;
        await host.createSession({ sessionId: id });
        expect(hostErrorName(await refused(host.turnComplete(id)))).toBe('ErrSnapshotsNotAvailable');
        await host.destroySession(id);
      });
    });

    describe('runtime', () => {
      it('has the lifecycle, exec, files and stats of a container runtime', async () => {
        const runtime = openRuntime(access());
        expect((await runtime.ping()).verdict).toBeDefined();
        const { id } = await runtime.create({ labels: { suite: name.replaceAll(' ', '-') } });
        expect((await runtime.info(id)).state).toBe('active');
        expect((await runtime.list({ suite: name.replaceAll(' ', '-') })).map((one) => one.id)).toEqual([id]);
        expect(await runtime.exec(id, 'cat; exit 3', { stdin: 'in' })).toMatchObject({
          exitCode: 3,
          stdout: 'in',
        });
        const types: string[] = [];
        for await (const event of runtime.execStream(id, ['echo', 'hi'])) types.push(event.type);
        expect(types).toEqual(['started', 'stdout', 'end']);
        await runtime.mkDir(id, '/home/user/d');
        await runtime.writeFile(id, '/home/user/d/f', 'x'.repeat(200_000));
        expect((await runtime.readFile(id, '/home/user/d/f')).length).toBe(200_000);
        expect((await runtime.listDir(id, '/home/user/d')).map((file) => file.name)).toEqual(['f']);
        await runtime.removeFile(id, '/home/user/d');
        expect(await runtime.stats(id)).toMatchObject({ cpuPercent: null });
        expect((await runtime.stop(id)).state).toBe('stopped');
        expect((await runtime.start(id)).state).toBe('active');
        await runtime.remove(id);
        await runtime.remove(id);
      });

      it.runIf(can.snapshots)('restores a snapshot with its environment and limits', async () => {
        const runtime = openRuntime(access());
        const { id } = await runtime.create({ env: { KEPT: 'yes' }, limits: { pids: 256 } });
        await runtime.writeFile(id, '/home/user/f', 'kept');
        const snapshot = await runtime.snapshot(id, 'one');
        expect((await runtime.listSnapshots(id)).map((one) => one.name)).toEqual(['one']);
        const copy = await runtime.restore(snapshot.id);
        expect(copy.limits.pids).toBe(256);
        expect((await runtime.exec(copy.id, 'cat f; echo $KEPT')).stdout).toBe('keptyes\n');
        await runtime.remove(copy.id);
        await runtime.removeSnapshot(snapshot.id);
        await runtime.remove(id);
      });

      it.runIf(can.resize)('changes the memory limit of a sandbox that runs', async () => {
        const runtime = openRuntime(access());
        const { id } = await runtime.create();
        const bytes = 256 * 1024 * 1024;
        expect((await runtime.updateMemoryLimit(id, bytes)).limits.memoryBytes).toBe(bytes);
        expect((await runtime.updateMemoryLimit(id, 2 * bytes)).limits.memoryBytes).toBe(2 * bytes);
        await runtime.remove(id);
      });
    });

    describe('async-backend', () => {
      it('ensures by name, reports conditions, and deletes step by step', async () => {
        const backend = asyncBackend(access());
        const wanted = `agent-${name.replaceAll(/[^a-z0-9]/g, '')}`;
        const { handle, endpoint } = await backend.ensure(wanted);
        expect(endpoint).toContain(handle.id);
        expect((await backend.ensure(wanted)).handle).toEqual(handle);
        expect(await backend.getStatus(handle)).toMatchObject({ status: 'True', reason: 'SandboxReady' });
        for (const generation of [1, 1, 2])
          await backend.onReady(handle, generation, 'echo ready >> bootstrap');
        const runtime = openRuntime(access());
        expect((await runtime.exec(handle.id, 'cat bootstrap')).stdout).toBe('ready\nready\n');
        expect(await backend.delete(handle)).toEqual({ done: false });
        await until(async () => (await backend.delete(handle)).done);
        expect(await backend.delete(handle)).toEqual({ done: true });
        expect(await backend.getStatus(handle)).toMatchObject({ status: 'False', reason: 'SandboxNotFound' });
      });

      it('is Unknown, and does not reject, while the server does not answer', async () => {
        const away = asyncBackend({ url: 'http://127.0.0.1:9', apiKey: 'none' });
        expect(await away.getStatus({ id: 'sbx_aaaaaaaaaaaaaaaaaaaa' })).toMatchObject({
          status: 'Unknown',
          reason: 'SandboxGetFailed',
        });
      });
    });
  });
}
