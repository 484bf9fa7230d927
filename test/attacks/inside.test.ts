/** Code in one sandbox against the host, against its neighbour, and against root of its own sandbox. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, watch } from 'node:fs';
import { join } from 'node:path';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { guestBinary } from '../../server/src/guest/guest-binary.ts';
import { insideEachPlatform } from './support/platforms.ts';
import type { Target } from './support/target.ts';

const TRIALS = readFileSync(join(import.meta.dirname, '../support/trials.py'), 'utf8');
/** Ends the programs by which Docker's engine reaches the guest, so that it has to start one again. */
const CUT =
  "for p in /proc/[0-9]*; do grep -qz '^bridge$' $p/cmdline 2>/dev/null && kill -9 ${p#/proc/}; done; true";
const reason = process.arch === 'x64' ? undefined : 'the trials know the system calls of x86-64 alone';
if (reason !== undefined) console.info(`attacks from inside: skipped: ${reason}`);

insideEachPlatform('code in a sandbox', (platform) => {
  describe.skipIf(reason !== undefined)('with system calls of x86-64', () => {
    let target: Target;
    let ours: string;
    let theirs: string;
    beforeAll(async () => {
      target = await platform.start();
      ours = (await target.alice.create()).id;
      theirs = (await target.bob.create()).id;
    }, 60_000);
    afterAll(() => target?.[Symbol.asyncDispose]());

    async function tried(group: string, user: string, id = ours): Promise<Record<string, unknown>> {
      const { stdout, stderr, exitCode } = await target.alice.exec(
        id,
        ['python3', '-c', TRIALS, group, '[]'],
        { user },
      );
      expect(exitCode, stderr).toBe(0);
      return JSON.parse(stdout) as Record<string, unknown>;
    }

    async function requireOthersWell(): Promise<void> {
      await target.requireAlive();
      expect((await target.bob.exec(theirs, ['true'])).exitCode).toBe(0);
    }

    it('leaves inotify, terminals and timers to the host and to its neighbour', async () => {
      const body = { argv: ['python3', '-c', TRIALS, 'take'], user: 'root', stdin: true };
      const started = await target.alice.call('POST', `/v1/sandboxes/${ours}/commands`, { body });
      expect(started.status).toBe(201);
      const { exitCode } = await target.alice.exec(ours, [
        'sh',
        '-c',
        'for i in $(seq 300); do [ -e /tmp/trial-taken ] && exit; sleep 0.1; done; exit 1',
      ]);
      expect(exitCode).toBe(0);
      const { stdout } = await target.bob.exec(theirs, ['python3', '-c', TRIALS, 'have']);
      expect(JSON.parse(stdout)).toMatchObject({ inotify: 'ok', terminals: 'ok', signals: 'ok' });
      for (let count = 0; count < 50; count += 1) watch(target.dataDir).close();
      await target.alice.call('POST', `/v1/sandboxes/${ours}/commands/${started.json.command.id}/signal`, {
        body: { signal: 'SIGKILL' },
      });
      await requireOthersWell();
    });

    it('enters the kernel by no other door, and leaves no file that carries rights or cannot be removed', async () => {
      const { id } = await target.alice.create();
      for (const user of ['user', 'root']) {
        const { i386, x32 } = await tried('entries', user, id);
        expect(x32).not.toBe('ok');
        if (platform.name === 'runc') expect(i386).not.toBe('ok');
      }
      const said = await tried('files', 'root', id);
      expect(Object.keys(said).filter((name) => said[name] === 'ok')).toEqual([]);
      expect((await target.alice.call('DELETE', `/v1/sandboxes/${id}`)).status).toBeLessThan(300);
      await requireOthersWell();
    });

    it('does not trace the guest as root, not even as the first command of all', async () => {
      const { id } = await target.alice.create();
      const said = await tried('pid1', 'root', id);
      const traced = [
        'mem',
        'ptrace attach',
        'ptrace seize',
        'process_vm_readv',
        'process_vm_writev',
        'pidfd_getfd',
      ];
      expect(traced.filter((name) => said[name] === 'ok')).toEqual([]);
    });

    it('traces, as a user, no process of root while commands are started', async () => {
      const tracing = tried('trace', 'user');
      const commands = Array.from({ length: 40 }, (_, index) =>
        target.alice.exec(ours, ['true'], { user: index % 2 === 0 ? 'root' : 'user' }),
      );
      await Promise.allSettled(commands);
      expect((await tracing)['owners']).not.toContain('0');
      expect((await target.alice.exec(ours, ['id', '-u'], { user: 'root' })).stdout.trim()).toBe('0');
    });

    it('changes no program of the host, by whatever name it has inside', async () => {
      const programs = [
        guestBinary(),
        '/usr/bin/python3',
        ...['runc', 'runsc'].flatMap((name) => [`/usr/bin/${name}`, `/usr/sbin/${name}`]),
      ].filter((path) => existsSync(path));
      const digests = () =>
        programs.map((path) => createHash('sha256').update(readFileSync(path)).digest('hex'));
      const before = digests();
      const overwrite =
        'for f in /run/cay-guest /proc/1/exe /proc/self/exe /usr/bin/python3; do echo x > $f; rm -f $f; done';
      await target.alice.exec(ours, ['sh', '-c', overwrite], { user: 'root' });
      expect(digests()).toEqual(before);
    });

    it('touches nothing of the host by links in its tree when it is stopped and started', async () => {
      const { id } = await target.alice.create();
      const before = readdirSync('/').toSorted();
      const swap =
        'rm -rf /tmp /home/user; ln -s ../../../../.. /tmp; ln -s / /home/user; mkfifo /etc/p; mv /etc/p /etc/passwd; ln -sf /dev/null /etc/group';
      await target.alice.exec(id, ['sh', '-c', swap], { user: 'root', workdir: '/' });
      await target.alice.call('POST', `/v1/sandboxes/${id}/stop`, { body: {} });
      const begun = performance.now();
      const started = await target.alice.call('POST', `/v1/sandboxes/${id}/start`, { body: {} });
      expect(performance.now() - begun).toBeLessThan(10_000);
      expect([200, 202, 409, 412, 503]).toContain(started.status);
      expect(readdirSync('/').toSorted()).toEqual(before);
      expect((await target.alice.call('DELETE', `/v1/sandboxes/${id}`)).status).toBeLessThan(300);
      await requireOthersWell();
    });

    it('makes pipes of the files that accounts are in, and no call hangs', async () => {
      const { alice } = target;
      const pipes = (link: string) =>
        `for f in passwd group; do rm -f /etc/$f; mkfifo /var/tmp/$f; ${link}; done; ${CUT}`;
      for (const link of ['mv /var/tmp/$f /etc/$f', 'ln -s ../../../var/tmp/$f /etc/$f']) {
        const { id } = await alice.create();
        // The answer to this is lost with what carries it.
        await alice
          .call('POST', `/v1/sandboxes/${id}/exec`, {
            body: { argv: ['sh', '-c', pipes(link)], user: 'root' },
            signal: AbortSignal.timeout(3_000),
          })
          .catch(() => {});
        // While it runs.
        await alice
          .call('POST', `/v1/sandboxes/${id}/exec`, {
            body: { argv: ['true'] },
            signal: AbortSignal.timeout(3_000),
          })
          .catch(() => {});
        await requireOthersWell();
        // A start reads these files again.
        await alice.call('POST', `/v1/sandboxes/${id}/stop`, { body: { graceMs: 0 } });
        const started = await alice.call('POST', `/v1/sandboxes/${id}/start`, {
          body: {},
          signal: AbortSignal.timeout(20_000),
        });
        expect([200, 409, 412, 503], started.text).toContain(started.status);
        await requireOthersWell();
        const removed = await alice.call('DELETE', `/v1/sandboxes/${id}`, {
          signal: AbortSignal.timeout(20_000),
        });
        expect(removed.status).toBeLessThan(300);
      }
      expect((await target.admin.call('GET', '/v1/sandboxes')).status).toBe(200);
      await requireOthersWell();
    });

    it('leads the file verbs of root, on its own tree, by no link to a file of root', async () => {
      const { id } = await target.alice.create();
      const root = (line: string) => target.alice.exec(id, ['sh', '-c', line], { user: 'root' });
      await root(
        'mkdir -p /srv/root/sub; echo a > /srv/root/f; echo b > /srv/root/sub/g; chmod -R go-w /srv/root',
      );
      const facts = async () =>
        (await root('ls -lnaR --time-style=+ /srv; cat /srv/root/f /srv/root/sub/g')).stdout;
      const before = await facts();
      const loop =
        'mkdir -p tree; cd tree; end=$(($(date +%s) + 6)); while [ $(date +%s) -lt $end ]; do mkdir -p d/sub; mv d e; ln -s /srv/root d; rm d; mv e d; ln -s /srv/root/f d/f; rm -rf d; done';
      const swapping = target.alice.exec(id, ['bash', '-c', loop]);
      let isOver = false;
      const watching = swapping.finally(() => (isOver = true));
      const tree = '/home/user/tree';
      const files = `/v1/sandboxes/${id}/files`;
      const done = [0, 0, 0];
      while (!isOver) {
        const replies = await Promise.all([
          target.alice.call('POST', `${files}/chown`, {
            body: { path: tree, owner: 'user', recursive: true, user: 'root' },
          }),
          target.alice.call('POST', `${files}/chmod`, {
            body: { path: tree, mode: 0o777, recursive: true, user: 'root' },
          }),
          target.alice.call('DELETE', `${files}?path=${tree}/d&recursive=1&user=root`),
        ]);
        for (const [index, { status }] of replies.entries()) if (status === 204) done[index]!++;
      }
      await watching;
      expect(Math.min(...done), done.join()).toBeGreaterThan(0);
      expect(await facts()).toBe(before);
      await requireOthersWell();
    });

    it("leads E2B's file verbs by no link to a file of root", async () => {
      const sandbox = await Sandbox.create({
        apiKey: target.alice.key,
        apiUrl: target.url,
        sandboxUrl: target.url,
      });
      const id = `sbx_${sandbox.sandboxId}`;
      const root = (line: string) => target.alice.exec(id, ['sh', '-c', line], { user: 'root' });
      await root(
        'mkdir -p /srv/root; echo secret > /srv/root/f; echo secret > /srv/root/g; chmod 755 /srv/root',
      );
      const facts = async () => (await root('ls -lnaR --time-style=+ /srv; cat /srv/root/*')).stdout;
      const before = await facts();
      const { files } = sandbox;
      // First without a race: the links are there.
      await target.alice.exec(id, ['sh', '-c', 'ln -s /srv/root d; ln -s /srv/root/f l']);
      await Promise.allSettled([
        files.write('d/f', 'x'),
        files.write('d/new', 'x'),
        files.write('l', 'x'),
        files.makeDir('d/sub'),
        files.remove('d/g'),
      ]);
      await Promise.allSettled([files.rename('d/g', 'mine'), files.rename('l', 'd/f')]);
      expect(await facts()).toBe(before);
      // Then with links that come and go.
      const loop =
        'rm -rf d; end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do mkdir d; mv d e; ln -s /srv/root d; rm d; mv e d; rm -rf d; done';
      const swapping = target.alice.exec(id, ['bash', '-c', loop]);
      for (let turn = 0; turn < 60; turn += 1) {
        await Promise.allSettled([
          files.write('d/f', 'x'),
          files.makeDir('d/sub'),
          files.makeDir('d'),
          files.remove('d/g'),
        ]);
      }
      await swapping;
      expect(await facts()).toBe(before);
      // What E2B promises is kept: a file anywhere, which is the user's, with the directories that were made
      // for it.
      await files.write('/app/src/main.py', 'print(1)');
      expect((await root('stat -c %U /app /app/src /app/src/main.py')).stdout).toBe('user\nuser\nuser\n');
    });
  });
});
