import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Guest } from '../../../guest/guest.ts';
import { memoryBackend } from '../memory.ts';

const backend = memoryBackend();
let guest: Guest;
let counter = 0;

beforeAll(async () => {
  const id = newId('sbx');
  await backend.ensure(id, SandboxSpecSchema.parse({}));
  guest = await backend.connect(id);
});
afterAll(() => backend.close());

async function sh(line: string, ...parameters: string[]) {
  const handle = await guest.exec({
    id: `c${++counter}`,
    argv: ['sh', '-c', line, ...parameters],
    env: { WORDS: 'a  b' },
    workdir: '/tmp',
    user: 'user',
  });
  const text = { stdout: '', stderr: '' };
  for await (const chunk of handle.output)
    if (chunk.channel === 'stdout' || chunk.channel === 'stderr')
      text[chunk.channel] += Buffer.from(chunk.data).toString();
  const end = await handle.ended;
  return { ...text, exitCode: end.kind === 'exited' ? end.exitCode : -1 };
}

describe('the shell of the memory backend', () => {
  it.each([
    ['splits a variable unless it is quoted', 'echo $WORDS "$WORDS"', 'a b a  b\n'],
    ['keeps an empty quoted word and drops an empty variable', 'printf "[%s]" "" $NONE ""', '[][]'],
    ['joins pieces into one word', `echo a"b c"'d'\\ e`, 'ab cd e\n'],
    [
      'knows ${NAME:-other} and ${NAME:+other}',
      'echo ${NONE:-"x y"} ${WORDS:+set} ${NONE:+unset}',
      'x y set\n',
    ],
    ['knows $?', 'false; echo $?; true; echo $?', '1\n0\n'],
    [
      'takes && and || from the left',
      'false && echo no || echo yes; true || echo no && echo also',
      'yes\nalso\n',
    ],
    ['gives a command its own environment', 'A=1 env | cat > e; A=2; echo $A', '2\n'],
    ['exports to commands', 'export A=5; B=6; sh -c \'echo "[$A$B]"\'', '[5]\n'],
    ['keeps a cd', 'mkdir -p d/e; cd d/e; cd ..; pwd', '/tmp/d\n'],
    ['redirects both ways, in order', 'cat /missing > both 2>&1; wc -l < both', '1\n'],
    ['throws away what goes to /dev/null', 'echo x > /dev/null; cat /dev/null; echo done', 'done\n'],
    ['ends a writer whose reader has gone', 'cat /dev/zero | head -c 3 | wc -c', '3\n'],
    ['skips comments and joins lines', 'echo a # not this\necho b \\\n c', 'a\nb c\n'],
    ['replaces itself by exec', 'exec echo only; echo not', 'only\n'],
    ['leaves a command in the background', 'sleep 60 & echo at once', 'at once\n'],
  ])('%s', async (_title, line, stdout) => {
    expect(await sh(line)).toMatchObject({ stdout, exitCode: 0 });
  });

  it('passes parameters', async () => {
    expect((await sh('echo $0 $1 $#; printf "<%s>" "$@"', 'name', 'one', 'two words')).stdout).toBe(
      'name one 2\n<one><two words>',
    );
  });

  it('has the exit code of the last command of a pipeline', async () => {
    expect((await sh('false | true')).exitCode).toBe(0);
    expect((await sh('true | false')).exitCode).toBe(1);
    expect((await sh('echo x | exit 3; exit')).exitCode).toBe(3);
  });

  it.each([
    'if true; then echo x; fi',
    'for i in 1 2; do echo $i; done',
    'echo $(pwd)',
    'echo `pwd`',
    'echo *.txt',
    '(echo x)',
    'cat <<END',
    'echo "open',
    'echo $((1+1))',
    'true &&',
    '| cat',
    'echo ${A%x}',
  ])('refuses %s instead of doing something else', async (line) => {
    const ran = await sh(`echo before; ${line}`);
    expect(ran).toMatchObject({ stdout: '', exitCode: 2 });
    expect(ran.stderr).toContain('syntax error');
  });

  it('refuses an option that a program does not know', async () => {
    expect(await sh('ls -Z')).toMatchObject({
      exitCode: 1,
      stderr: 'ls: option "-Z" is not known to the memory backend\n',
    });
  });
});
