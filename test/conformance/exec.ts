import { expect } from 'vitest';
import { within } from './box.ts';
import { rejects, type Suite } from './suite.ts';

export function execCases(suite: Suite): void {
  suite.share();

  suite.inBox('argv is passed as it is, with nothing expanded', [], async (box) => {
    const ran = await box.run(['printf', '%s|', '$HOME', '*', 'a b', '', "it's", '\\n', 'ü']);
    expect(ran.stdout).toBe("$HOME|*|a b||it's|\\n|ü|");
  });

  suite.inBox('a shell line is expanded by a shell', [], async (box) => {
    expect((await box.run('X="a b"; echo $X "$X" && echo \'$X\'')).stdout).toBe('a b a b\n$X\n');
  });

  suite.inBox('env reaches the command', [], async (box) => {
    const ran = await box.run('echo "$GREETING/${EMPTY:-none}"', {
      env: { GREETING: 'hällo wörld', EMPTY: '' },
    });
    expect(ran.stdout).toBe('hällo wörld/none\n');
  });

  suite.inBox('HOME, USER and PATH are filled in for the user', [], async (box) => {
    expect((await box.run('echo "$HOME $USER ${PATH:+path}"')).stdout).toBe('/home/user user path\n');
  });

  suite.inBox('HOME is that of root for root', ['users'], async (box) => {
    expect((await box.run('echo "$HOME $USER"', { user: 'root', workdir: '/' })).stdout).toBe('/root root\n');
  });

  suite.inBox('the workdir is where the command runs', [], async (box) => {
    await box.files.mkdir(`${box.dir}/a dir`);
    expect((await box.run(['pwd'], { workdir: `${box.dir}/a dir` })).stdout).toBe(`${box.dir}/a dir\n`);
  });

  suite.inBox('the user is not root', [], async (box) => {
    expect((await box.run(['id', '-u'])).stdout.trim()).not.toBe('0');
    expect((await box.run(['id', '-un'])).stdout).toBe('user\n');
  });

  suite.inBox('root is given on request', ['users'], async (box) => {
    expect((await box.run(['id', '-u'], { user: 'root' })).stdout).toBe('0\n');
  });

  suite.inBox('a number need not be a known user', ['users'], async (box) => {
    expect((await box.run(['id', '-u'], { user: '4321:8765', workdir: '/' })).stdout).toBe('4321\n');
    expect((await box.run(['id', '-g'], { user: '4321:8765', workdir: '/' })).stdout).toBe('8765\n');
  });

  suite.inBox('an unknown user is not_found', [], async (box) => {
    const error = await rejects(box.run(['true'], { user: 'nobody-of-that-name' }), 'not_found');
    expect(error.details).toMatchObject({ what: 'user' });
  });

  suite.inBox('a missing workdir is not_found', [], async (box) => {
    const error = await rejects(box.run(['true'], { workdir: `${box.dir}/nowhere` }), 'not_found');
    expect(error.details).toMatchObject({ what: 'workdir' });
  });

  suite.inBox('a missing command is not_found with 127', [], async (box) => {
    for (const program of ['no-such-program', `${box.dir}/no-such-program`]) {
      const error = await rejects(box.run([program]), 'not_found');
      expect(error.details).toMatchObject({ what: 'command', exitCode: 127 });
    }
  });

  suite.inBox('a file without the x bit is permission_denied with 126', [], async (box) => {
    const path = await box.write('script', '#!/bin/sh\necho ran\n');
    const error = await rejects(box.run([path]), 'permission_denied');
    expect(error.details).toMatchObject({ exitCode: 126 });
  });

  suite.inBox('a directory is permission_denied with 126', [], async (box) => {
    const error = await rejects(box.run([box.dir]), 'permission_denied');
    expect(error.details).toMatchObject({ exitCode: 126 });
  });

  suite.inBox('a script with the x bit runs', [], async (box) => {
    const path = await box.write('script', '#!/bin/sh\necho "ran with $1"\n');
    await box.files.chmod(path, 0o755);
    expect((await box.run([path, 'one'])).stdout).toBe('ran with one\n');
  });

  suite.inBox('a shell tells 127 and 126 apart by exit code', [], async (box) => {
    await box.write('script', '#!/bin/sh\n');
    expect((await box.run('no-such-program')).end).toEqual({ kind: 'exited', exitCode: 127 });
    expect((await box.run('./script')).end).toEqual({ kind: 'exited', exitCode: 126 });
  });

  suite.inBox('standard input comes back as it was sent', [], async (box) => {
    const ran = await box.run(['cat'], { stdin: 'one\ntwo' });
    expect(ran).toMatchObject({ stdout: 'one\ntwo', exitCode: 0 });
  });

  suite.inBox('standard input is empty unless it was asked for', [], async (box) => {
    expect(await within(10_000, 'the end of cat', box.run(['cat']))).toMatchObject({
      stdout: '',
      exitCode: 0,
    });
  });

  suite.inBox('closing standard input ends what reads it', [], async (box) => {
    const handle = await box.start(['wc', '-c'], { stdin: true });
    await handle.write(Buffer.from('12345'));
    await handle.write(Buffer.from('678'));
    await handle.closeStdin();
    const parts: string[] = [];
    for await (const chunk of handle.output)
      if (chunk.channel === 'stdout') parts.push(Buffer.from(chunk.data).toString());
    expect(parts.join('').trim()).toBe('8');
    expect(await handle.ended).toEqual({ kind: 'exited', exitCode: 0 });
  });

  suite.inBox('write() rejects failed_precondition without stdin', [], async (box) => {
    const handle = await box.start(['sleep', '60']);
    await rejects(handle.write(Buffer.from('x')), 'failed_precondition');
    await box.guest.signal(handle.id, 'SIGKILL');
  });

  suite.inBox(
    'a command that does not read its input does not hang the one who writes it',
    [],
    async (box) => {
      const ran = await within(
        10_000,
        'the end of true',
        box.run(['true'], { stdin: Buffer.alloc(1024 * 1024) }),
      );
      expect(ran.exitCode).toBe(0);
    },
  );

  suite.inBox('pipes and redirections of the shell work', [], async (box) => {
    const ran = await box.run(
      'printf "a\\nb\\nc\\n" > list; cat < list | wc -l; cat missing 2> errors || echo failed; wc -l < errors',
    );
    expect(ran.stdout.replace(/ /g, '')).toBe('3\nfailed\n1\n');
  });
}
