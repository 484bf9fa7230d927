import type { Program } from '../program.ts';
import { flagsOf, forEach } from './streams.ts';

const pwd: Program = async ({ workdir, stdout }) => {
  await stdout.write(`${workdir}\n`);
  return 0;
};

/** `env [-i] [NAME=VALUE…] [COMMAND…]`. */
const env: Program = async (context) => {
  const { flags, rest } = flagsOf(context.argv, 'i');
  const next: Record<string, string> = flags.has('i') ? {} : { ...context.env };
  while (rest[0]?.includes('=')) {
    const [name = '', ...value] = rest.shift()!.split('=');
    next[name] = value.join('=');
  }
  if (rest.length > 0) return context.run(rest, { env: next });
  for (const [name, value] of Object.entries(next)) await context.stdout.write(`${name}=${value}\n`);
  return 0;
};

const ls: Program = async (context) => {
  const { flags, rest } = flagsOf(context.argv, 'a1A');
  const failed = await forEach(context, rest.length > 0 ? rest : ['.'], async (name) => {
    const path = context.path(name);
    const info = await context.files.stat(path, { follow: true });
    if (info.type !== 'directory') return context.stdout.write(`${name}\n`);
    const names: string[] = [];
    for await (const entry of context.files.list(path)) names.push(entry.name);
    const shown = names.filter((entry) => !entry.startsWith('.') || flags.has('a') || flags.has('A'));
    if (shown.length > 0) await context.stdout.write(`${shown.join('\n')}\n`);
  });
  return failed === 0 ? 0 : 2;
};

const mkdir: Program = (context) => {
  const { flags, rest } = flagsOf(context.argv, 'p');
  return forEach(context, rest, async (name) => {
    const path = context.path(name);
    // Files.mkdir() makes parents; without -p that would be too kind.
    if (!flags.has('p'))
      await context.files.stat(path.slice(0, path.lastIndexOf('/')) || '/', { follow: true });
    const made = await context.files.mkdir(path);
    if (!made && !flags.has('p')) throw new Error('file exists');
  });
};

const rm: Program = (context) => {
  const { flags, rest } = flagsOf(context.argv, 'rfR');
  const recursive = flags.has('r') || flags.has('R');
  return forEach(context, rest, async (name) => {
    const path = context.path(name);
    const info = await context.files.stat(path).catch((error: unknown) => {
      if (flags.has('f')) return undefined;
      throw error;
    });
    if (!info) return;
    if (info.type === 'directory' && !recursive) throw new Error('is a directory');
    await context.files.remove(path, { recursive });
  });
};

const touch: Program = (context) =>
  forEach(context, context.argv.slice(1), async (name) => {
    const path = context.path(name);
    await context.files.stat(path.slice(0, path.lastIndexOf('/')) || '/', { follow: true });
    await context.files.write(path, new Uint8Array(0), { append: true });
  });

const id: Program = async ({ argv, user, stdout }) => {
  const answers: Record<string, string> = {
    '': `uid=${user.uid}(${user.name}) gid=${user.gid}`,
    '-u': `${user.uid}`,
    '-g': `${user.gid}`,
    '-un': user.name,
  };
  const answer = answers[argv[1] ?? ''];
  if (answer === undefined) throw new Error(`option "${argv[1]}" is not known to the memory backend`);
  await stdout.write(`${answer}\n`);
  return 0;
};

/** `test`, and `[` with its bracket. */
const test: Program = async (context) => {
  const words = context.argv.slice(1);
  if (context.argv[0]!.endsWith('[') && words.pop() !== ']') throw new Error('"]" is missing');
  if (words[0] === '!') return (await context.run(['test', ...words.slice(1)])) === 0 ? 1 : 0;
  return (await holds(words)) ? 0 : 1;

  async function holds([first = '', second, third]: string[]): Promise<boolean> {
    if (words.length <= 1) return first !== '';
    if (words.length === 2) {
      if (first === '-n') return second !== '';
      if (first === '-z') return second === '';
      const info = await context.files.stat(context.path(second!), { follow: true }).catch(() => undefined);
      if (first === '-e') return info !== undefined;
      if (first === '-f') return info?.type === 'file';
      if (first === '-d') return info?.type === 'directory';
      if (first === '-s') return (info?.sizeBytes ?? 0) > 0;
    }
    if (words.length === 3) {
      if (second === '=') return first === third;
      if (second === '!=') return first !== third;
      const comparison = { '-eq': 0, '-ne': 0, '-lt': -1, '-gt': 1, '-le': -1, '-ge': 1 }[second!];
      if (comparison !== undefined) {
        const sign = Math.sign(Number(first) - Number(third));
        if (second === '-ne') return sign !== 0;
        return sign === comparison || (sign === 0 && (second === '-le' || second === '-ge'));
      }
    }
    throw new Error(`"${words.join(' ')}" is not known to the memory backend`);
  }
};

export const FILE_PROGRAMS: Record<string, Program> = { pwd, env, ls, mkdir, rm, touch, id, test, '[': test };
