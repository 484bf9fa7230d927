/** Templates from the builder of a published client. */
import { mkdtempSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type * as e2b from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { visit, type E2bPlatform } from './e2b-platform.ts';

/** Answers with how often it was asked, and when it was started. */
const SERVER = `
import http.server, time
started, count = time.time(), 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global count
        count += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{started} {count}".encode())
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
`;

export interface TemplatesTraits {
  /** Sandboxes of a template with a start command have it running already. */
  memory: boolean;
}

export function templatesSuite(
  client: typeof e2b,
  platform: () => E2bPlatform,
  { memory }: TemplatesTraits,
): void {
  const { Sandbox, Template, waitForPort, waitForTimeout } = client;

  describe('templates', () => {
    let context: string;
    beforeAll(() => {
      context = mkdtempSync(join(tmpdir(), 'cay-context-'));
      mkdirSync(join(context, 'site', 'deep'), { recursive: true });
      writeFileSync(join(context, 'site', 'a.txt'), 'a');
      writeFileSync(join(context, 'site', 'b.md'), 'b');
      writeFileSync(join(context, 'site', 'deep', '.hidden'), 'h');
      symlinkSync('a.txt', join(context, 'site', 'link'));
      mkdirSync(join(context, 'links'));
      writeFileSync(join(context, 'links', 'file'), 'linked');
      symlinkSync('file', join(context, 'links', 'relative'));
      symlinkSync(join(context, 'links', 'file'), join(context, 'links', 'absolute'));
      symlinkSync('nowhere', join(context, 'links', 'dangling'));
      writeFileSync(join(context, 'server.py'), SERVER);
    });
    afterAll(() => rmSync(context, { recursive: true, force: true }));

    const made: e2b.Sandbox[] = [];
    afterAll(() => Promise.all(made.map((sandbox) => sandbox.kill())));
    const create = async (template: string, options: e2b.SandboxOpts = {}) => {
      const sandbox = await Sandbox.create(template, { ...platform().access, ...options });
      made.push(sandbox);
      return sandbox;
    };
    const builder = () => Template({ fileContextPath: context });
    const run = async (sandbox: e2b.Sandbox, line: string) =>
      (await sandbox.commands.run(line)).stdout.trim();

    it('builds one with files, commands, environment, directory and user', async () => {
      const logs: string[] = [];
      const template = builder()
        .fromBaseImage()
        .copy('site', 'copied')
        .copy('site/*.txt', '/srv/texts/', { mode: 0o750 })
        .copy('server.py', '/srv/app/main.py', { user: 'root' })
        .setEnvs({ GREETING: 'hello "you"', FULL: 'at $HOME' })
        .runCmd(['echo "$GREETING" > greeting', 'echo told; echo tale >&2'])
        .setWorkdir('/srv/work')
        .runCmd('pwd > where; id -un >> where')
        .runCmd('id -un > /srv/root', { user: 'root' })
        .setUser('root');
      const info = await Template.build(template, 'built', {
        ...platform().access,
        cpuCount: 1,
        memoryMB: 512,
        onBuildLogs: (entry) => logs.push(entry.message),
      });
      expect(info).toMatchObject({ name: 'built', templateId: 'built', tags: ['default'] });
      expect(logs).toContain('[stdout]: told');
      expect(logs).toContain('[stderr]: tale');

      const sandbox = await create('built');
      expect(
        await run(
          sandbox,
          'cd /home/user/copied && find . | sort && cat a.txt link deep/.hidden && readlink link',
        ),
      ).toBe(['.', './a.txt', './b.md', './deep', './deep/.hidden', './link', 'aaha.txt'].join('\n'));
      expect(
        await run(
          sandbox,
          'stat -c "%U %a %n" /home/user/copied/a.txt /srv/texts/a.txt /srv/app/main.py && ls /srv/texts',
        ),
      ).toBe(
        [
          'user 644 /home/user/copied/a.txt',
          'user 750 /srv/texts/a.txt',
          'root 644 /srv/app/main.py',
          'a.txt',
        ].join('\n'),
      );
      expect(await run(sandbox, 'cat /home/user/greeting /srv/work/where /srv/root')).toBe(
        'hello "you"\n/srv/work\nuser\nroot',
      );
      // What the template has set, sandboxes have.
      expect(await run(sandbox, 'echo "$GREETING,$FULL,$PWD,$(id -un)"')).toBe(
        'hello "you",at /home/user,/srv/work,root',
      );
      expect(await sandbox.getInfo()).toMatchObject({
        cpuCount: 1,
        memoryMB: 512,
        templateId: 'built',
        metadata: {},
      });
      expect(await Template.exists('built', platform().access)).toBe(true);
      expect(await Template.exists('never-built', platform().access)).toBe(false);
      expect(await Template.exists('built', platform().stranger)).toBe(false);
      await expect(Sandbox.create('built', platform().stranger)).rejects.toThrow(/^404: /);
    });

    it('starts what a template starts, and has it ready', async () => {
      const template = builder()
        .fromTemplate('base')
        .copy('server.py', 'server.py')
        .setStartCmd('python3 server.py', waitForPort(8000));
      await Template.build(template, 'serving', platform().access);
      const answers: string[][] = [];
      for (let index = 0; index < 2; index++) {
        const sandbox = await create('serving');
        const { status, body } = await visit(platform().url, sandbox.getHost(8000));
        expect(status).toBe(200);
        answers.push(body.split(' '));
      }
      // Each has its own count; only where memory is kept they share the moment of the start.
      expect(answers.map(([, count]) => count)).toEqual(['1', '1']);
      expect(answers[0]![0] === answers[1]![0]).toBe(memory);

      // One that is built from it has the same start command, unless it has its own.
      await Template.build(
        builder().fromTemplate('serving').setEnvs({ CHILD: 'yes' }),
        'serving-child',
        platform().access,
      );
      const child = await create('serving-child');
      expect(await visit(platform().url, child.getHost(8000))).toMatchObject({ status: 200 });
      expect(await run(child, 'echo $CHILD')).toBe('yes');
    });

    it('copies links as they are or what they lead to, and takes a start command that ends', async () => {
      const template = builder()
        .fromTemplate('base')
        .copy('links/*', 'links', { forceUpload: true })
        .copy('links/relative', 'resolved/file', { forceUpload: true, resolveSymlinks: true })
        .makeSymlink('.bashrc', '.bashrc.local')
        .makeSymlink('.bashrc', '.bashrc.local', { force: true })
        .runCmd(['cat links/relative resolved/file', 'test "$(readlink .bashrc.local)" = .bashrc'])
        .setStartCmd('echo hello', waitForTimeout(1000));
      await Template.build(template, 'linking', { ...platform().access, skipCache: true });
      const sandbox = await create('linking');
      expect(
        await run(
          sandbox,
          'cat links/relative resolved/file; readlink links/dangling; test -h resolved/file || echo file',
        ),
      ).toBe('linkedlinkednowhere\nfile');
    });

    it('keeps of its parent what it does not set itself', async () => {
      const access = platform().access;
      await Template.build(
        builder()
          .fromTemplate('base')
          .setEnvs({ OF: 'parent', BOTH: 'parent' })
          .setWorkdir('/srv/parent')
          .setUser('root'),
        'parent',
        access,
      );
      const told = 'echo "$(id -un) $PWD $OF $BOTH"';
      await Template.build(
        builder().fromTemplate('parent').setEnvs({ BOTH: 'child' }).runCmd(`${told} > told`),
        'child',
        access,
      );
      const child = await create('child');
      expect(await run(child, `cat /srv/parent/told; ${told}`)).toBe(
        'root /srv/parent parent child\nroot /srv/parent parent child',
      );
      // What it sets holds, also where it is what every sandbox has that nobody changed.
      await Template.build(
        builder().fromTemplate('child').setUser('user').setWorkdir('/home/user'),
        'grandchild',
        access,
      );
      expect(await run(await create('grandchild'), told)).toBe('user /home/user parent child');
    });

    it('removes one with all its tags, and nothing else', async () => {
      const access = platform().access;
      const remove = (name: string, key = access.apiKey) =>
        fetch(`${platform().url}/templates/${encodeURIComponent(name)}`, {
          method: 'DELETE',
          headers: { 'x-api-key': key },
        });
      await Template.build(builder().fromTemplate('base').runCmd('echo 1 > it'), 'going', {
        ...access,
        tags: ['default', 'v1'],
      });
      await Template.build(builder().fromTemplate('base').runCmd('echo 2 > it'), 'going:v2', access);
      await Template.build(builder().fromTemplate('base').runCmd('echo 3 > it'), 'going-on', access);
      const standing = await create('going:v2');
      expect((await remove('going', platform().stranger.apiKey)).status).toBe(404);
      expect((await remove('going')).status).toBe(204);
      expect((await remove('going')).status).toBe(404);
      for (const name of ['going', 'going:v1', 'going:v2'])
        await expect(Sandbox.create(name, access)).rejects.toThrow(/^404: /);
      expect(await run(standing, 'cat it')).toBe('2');
      expect(await run(await create('going-on'), 'cat it')).toBe('3');
      expect((await remove('base')).status).toBe(404);
    });

    it('builds in the background and tells how far it is', async () => {
      const info = await Template.buildInBackground(
        builder().fromTemplate('base').runCmd('sleep 0.3 && seq 250'),
        'slow',
        platform().access,
      );
      let status = await Template.getBuildStatus(info, platform().access);
      expect(['waiting', 'building']).toContain(status.status);
      while (status.status === 'building' || status.status === 'waiting')
        status = await Template.getBuildStatus(info, platform().access);
      expect(status).toMatchObject({ status: 'ready', buildID: info.buildId, templateID: info.templateId });
      const lines: string[] = [];
      for (let offset = 0; ;) {
        const { logEntries } = await Template.getBuildStatus(info, {
          ...platform().access,
          logsOffset: offset,
        });
        expect(logEntries.length).toBeLessThanOrEqual(100);
        if (logEntries.length === 0) break;
        offset += logEntries.length;
        lines.push(
          ...logEntries.map(({ message }) => message).filter((message) => message.startsWith('[stdout]: ')),
        );
      }
      expect(lines).toEqual(Array.from({ length: 250 }, (_, index) => `[stdout]: ${index + 1}`));
      await expect(Template.getBuildStatus(info, platform().stranger)).rejects.toThrow(/404/);
    });

    it('names builds by tags', async () => {
      const access = platform().access;
      const first = await Template.build(
        builder().fromTemplate('base').runCmd('echo 1 > version'),
        'tagged:v1',
        access,
      );
      const second = await Template.build(
        builder().fromTemplate('base').runCmd('echo 2 > version'),
        'tagged',
        {
          ...access,
          tags: ['v2', 'default'],
        },
      );
      expect(first.tags).toEqual(['v1']);
      expect(second.tags).toEqual(['v2', 'default']);
      const version = async (name: string) => run(await create(name), 'cat version');
      expect([await version('tagged'), await version('tagged:v1'), await version('tagged:v2')]).toEqual([
        '2',
        '1',
        '2',
      ]);
      expect(await Template.assignTags('tagged:v1', ['stable', 'default'], access)).toEqual({
        buildId: first.buildId,
        tags: ['stable', 'default'],
      });
      expect([await version('tagged:default'), await version('tagged:stable')]).toEqual(['1', '1']);
      const tags = await Template.getTags('tagged', access);
      expect(Object.fromEntries(tags.map(({ tag, buildId }) => [tag, buildId]))).toEqual({
        v1: first.buildId,
        stable: first.buildId,
        default: first.buildId,
        v2: second.buildId,
      });
      await Template.removeTags('tagged', ['v1', 'stable'], access);
      await expect(Sandbox.create('tagged:v1', access)).rejects.toThrow(/^404: /);
      await expect(Template.assignTags('tagged', [':no'], access)).rejects.toThrow();
      await expect(Template.assignTags('tagged', ['tagged:'], access)).rejects.toThrow();
      await expect(Template.assignTags('never-built', ['x'], access)).rejects.toThrow(/404/);
    });

    it('says what is wrong with a build, and where', async () => {
      const access = platform().access;
      const failing = async (template: e2b.TemplateClass, name = 'failing') => {
        const error = await Template.build(template, name, access).then(
          () => undefined,
          (failure: unknown) => failure as Error,
        );
        expect(error).toBeInstanceOf(client.BuildError);
        return error!.message;
      };
      expect(await failing(builder().fromTemplate('base').runCmd('true').runCmd('exit 3'))).toBe(
        "failed to run command 'exit 3': exit status 3",
      );
      expect(await failing(builder().fromTemplate('base').runCmd('whoami', { user: 'root123' }))).toBe(
        "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'",
      );
      expect(await failing(builder().fromImage('ubuntu:22.04'))).toMatch(
        /Cannot build from "ubuntu:22.04".*build from "base"/,
      );
      expect(await failing(builder().fromTemplate('never-built'))).toMatch(/never-built/);
      expect(await failing(builder().fromImage('private/image', { username: 'u', password: 'p' }))).toMatch(
        /credentials/,
      );
      expect(await failing(builder().fromTemplate('base'), 'base')).toMatch(/comes with/);
      expect(await failing(builder().fromTemplate('base'), 'Not/Good')).toMatch(/cannot name a template/);
      expect(await Template.exists('failing', access)).toBe(false);
      // Nothing is left of what failed.
      const left = await Sandbox.list(access).nextItems();
      expect(
        left.filter(({ sandboxId }) => !made.some((sandbox) => sandbox.sandboxId === sandboxId)),
      ).toEqual([]);
    });
  });
}
