/**
 * The machine is restarted under a server: every process, cgroup, mount and loop device is gone, and the data
 * is there.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { Sandbox } from '@cay/sdk';
import { runningServer } from '../../server/src/cli/lib/running-server.ts';
import { cliFileOf, readFileOr, serverFileOf, type CliFile } from '../../server/src/cli/lib/settings.ts';
import { isAlive, processStat } from '../../server/src/lib/proc.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { reboot } from '../support/reboot.ts';
import { openInstallation, type Installation } from './model/installation.ts';

const reason = whyNoLocal();
const BOOT_ID = join('/tmp', `cay-boot-${process.pid}`);

describe.skipIf(reason !== undefined)(
  `a restart of the machine${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    let installation: Installation | undefined;
    let stranger: ChildProcess | undefined;
    afterEach(async () => {
      stranger?.kill('SIGKILL');
      await installation?.destroy();
      [installation, stranger] = [undefined, undefined];
    });

    afterAll(() => rmSync(BOOT_ID, { force: true }));

    const connection = () => {
      const { url, key } = readFileOr<CliFile>(cliFileOf(installation!.dataDir))!;
      return { url, apiKey: key };
    };
    const again = (box: Sandbox) => Sandbox.connect(box.id, connection());
    async function make(request: Parameters<typeof Sandbox.create>[0], note: string): Promise<Sandbox> {
      const box = await Sandbox.create(request, connection());
      await box.files.write('/home/user/note', note);
      return box;
    }
    async function restart(): Promise<void> {
      await installation!.kill('SIGKILL');
      await reboot(installation!.engineDir);
      writeFileSync(BOOT_ID, `boot ${Math.random()}\n`);
    }

    it('leaves files, snapshots and what was hibernated, and no sandbox that has ended is shown as running', async () => {
      writeFileSync(BOOT_ID, 'the first boot\n');
      installation = await openInstallation('runc', { env: { CAY_BOOT_ID_FILE: BOOT_ID } });
      await installation.start();
      const runs = await make({}, 'runs');
      const asked = await make({ onBoot: 'start' }, 'asked');
      const frozen = await make({}, 'frozen');
      const askedFrozen = await make({ onBoot: 'start' }, 'asked frozen');
      const stopped = await make({ onBoot: 'start' }, 'stopped');
      const asleep = await make({ runtime: 'runsc', onBoot: 'start' }, 'asleep');
      const kept = await runs.snapshot({ name: 'kept' });
      const counting = await asleep.launch(
        'i=0; while :; do i=$((i+1)); echo $i > /home/user/count; sleep 0.1; done',
      );
      await expect
        .poll(async () => Number(await asleep.files.readText('/home/user/count').catch(() => 0)))
        .toBeGreaterThan(3);
      await frozen.pause({ as: 'frozen' });
      await askedFrozen.pause({ as: 'frozen' });
      await stopped.stop({ graceMs: 0 });
      await asleep.pause({ as: 'hibernated' });

      await restart();
      // The numbers of the last boot's processes are others' now: of one sandbox, and of the server.
      stranger = spawn('sleep', ['1000'], { stdio: 'ignore' });
      const { pid } = stranger;
      const { startTime } = processStat(pid!)!;
      const states = globSync(join(installation.engineDir, 'runtimes/runc/*/state.json'));
      expect(states.length).toBeGreaterThan(0);
      for (const file of states) {
        const state = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
        writeFileSync(
          file,
          JSON.stringify({ ...state, init_process_pid: pid, init_process_start: startTime }),
        );
      }
      const serverFile = serverFileOf(installation.dataDir);
      writeFileSync(
        serverFile,
        JSON.stringify({ ...JSON.parse(readFileSync(serverFile, 'utf8')), pid, startTime }),
      );
      expect(runningServer(installation.dataDir)).toBeUndefined();

      await installation.start();
      expect((await again(runs)).info).toMatchObject({ state: 'stopped', reason: 'host_restarted' });
      expect((await again(frozen)).info).toMatchObject({ state: 'stopped', reason: 'host_restarted' });
      expect((await again(stopped)).info).toMatchObject({ state: 'stopped' });
      expect((await again(asleep)).info).toMatchObject({ state: 'paused', pausedAs: 'hibernated' });
      for (const [box, note] of [
        [asked, 'asked'],
        [askedFrozen, 'asked frozen'],
      ] as const) {
        await expect.poll(async () => (await again(box)).info.state, { timeout: 20_000 }).toBe('active');
        expect(await (await again(box)).files.readText('/home/user/note')).toBe(note);
      }

      // It wakes with what it was doing.
      const woken = await again(asleep);
      const before = Number(await woken.files.readText('/home/user/count'));
      await expect
        .poll(async () => Number(await woken.files.readText('/home/user/count')))
        .toBeGreaterThan(before);
      expect((await woken.command(counting.command.id)).end).toBeUndefined();

      for (const [box, note] of [
        [runs, 'runs'],
        [frozen, 'frozen'],
        [stopped, 'stopped'],
      ] as const) {
        const started = await again(box);
        await started.start();
        expect(started.info.reason).toBeUndefined();
        expect(await started.files.readText('/home/user/note')).toBe(note);
      }
      const travelled = await again(runs);
      await travelled.files.write('/home/user/note', 'changed');
      expect((await Array.fromAsync(travelled.snapshots())).map(({ id }) => id)).toContain(kept.id);
      await travelled.rollback('kept');
      expect(await (await again(runs)).files.readText('/home/user/note')).toBe('runs');
      expect(isAlive(pid!, startTime)).toBe(true);
    }, 180_000);

    it('is followed by the start of what asked for it also if the server dies before that is done, and not of what was stopped since', async () => {
      writeFileSync(BOOT_ID, 'the first boot\n');
      installation = await openInstallation('runc', { env: { CAY_BOOT_ID_FILE: BOOT_ID, CAY_POOL: '0' } });
      await installation.start();
      const asked = await make({ onBoot: 'start' }, 'asked');
      const unwanted = await make({ onBoot: 'start' }, 'unwanted');
      await restart();
      // No start comes to its end.
      await installation.start({ faultPoints: { 'local.start.*': 'hang' } });
      await expect.poll(async () => (await again(asked)).info.state).toBe('stopped');
      await installation.kill('SIGKILL');
      await installation.start();
      await expect.poll(async () => (await again(asked)).info.state, { timeout: 20_000 }).toBe('active');
      expect(await (await again(asked)).files.readText('/home/user/note')).toBe('asked');
      await (await again(unwanted)).stop({ graceMs: 0 });
      await installation.kill('SIGKILL');
      await installation.start();
      expect((await again(unwanted)).info.state).toBe('stopped');
      expect((await again(asked)).info.state).toBe('active');
    }, 120_000);
  },
);
