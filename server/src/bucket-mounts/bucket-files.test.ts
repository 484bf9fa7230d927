/** Programs in a mount against a model of files, with servers that are killed, and buckets that fail. */
import fc from 'fast-check';
import { constants } from 'node:os';
import { describe, expect, it } from 'vitest';
import { CayError } from '@cay/sdk/protocol';
import type { BucketFiles } from './bucket-files.ts';
import { OpenFlag } from './fuse/opcodes.ts';
import { asked, at, namesIn } from './testing/calls.ts';
import { openTestFiles, type TestFiles } from './testing/open-files.ts';

const { errno } = constants;
const FILES = ['a', 'b', 'd/a', 'd/b', 'e/a'];
const DIRECTORIES = ['d', 'e', 'd/c'];

type Step =
  | { do: 'write'; path: string; offset: number; text: string; close: boolean }
  | { do: 'replace'; path: string; text: string }
  | { do: 'truncate'; path: string; size: number }
  | { do: 'read' | 'unlink'; path: string }
  | { do: 'mkdir' | 'rmdir' | 'list'; path: string }
  | { do: 'rename'; path: string; to: string }
  | { do: 'renameDirectory'; path: string; to: string }
  | { do: 'restart' };

const file = fc.constantFrom(...FILES);
const directory = fc.constantFrom(...DIRECTORIES);
const text = fc.string({ maxLength: 12 });
const writing = [
  fc.record({
    do: fc.constant('write' as const),
    path: file,
    offset: fc.nat(20),
    text,
    close: fc.boolean(),
  }),
  fc.record({ do: fc.constant('replace' as const), path: file, text }),
  fc.record({ do: fc.constant('truncate' as const), path: file, size: fc.nat(20) }),
  fc.record({ do: fc.constant('restart' as const) }),
];
const anything: fc.Arbitrary<Step> = fc.oneof(
  ...writing,
  fc.record({ do: fc.constantFrom('read' as const, 'unlink' as const), path: file }),
  fc.record({ do: fc.constantFrom('mkdir' as const, 'rmdir' as const, 'list' as const), path: directory }),
  fc.record({ do: fc.constant('rename' as const), path: file, to: file }),
  fc.record({ do: fc.constant('renameDirectory' as const), path: directory, to: directory }),
);

async function parentOf(files: BucketFiles, path: string): Promise<{ parent: number; name: string }> {
  const names = path.split('/');
  const name = names.pop()!;
  return { parent: await at(files, names.join('/')), name };
}

async function contentOf(files: BucketFiles, path: string): Promise<string> {
  const node = await at(files, path);
  await files.open.open(node, OpenFlag.readOnly);
  const { sizeBytes } = await files.getattr(node);
  const found = Buffer.concat(await files.open.read(node, 0, 1_000)).toString('latin1');
  expect(found.length).toBe(sizeBytes);
  await files.open.release(node);
  return found;
}

class Model {
  readonly files = new Map<string, Buffer>();
  readonly directories = new Set<string>();

  kind(path: string): 'file' | 'directory' | undefined {
    if (this.files.has(path)) return 'file';
    return path === '' || this.directories.has(path) ? 'directory' : undefined;
  }

  below(path: string): string[] {
    return [...this.files.keys(), ...this.directories].filter((one) => one.startsWith(`${path}/`));
  }

  write(path: string, offset: number, data: Buffer): void {
    const old = this.files.get(path) ?? Buffer.alloc(0);
    const made = Buffer.alloc(data.length > 0 ? Math.max(old.length, offset + data.length) : old.length);
    old.copy(made);
    data.copy(made, offset);
    this.files.set(path, made);
  }
}

const dirname = (path: string) => path.split('/').slice(0, -1).join('/');

/** What `open(O_CREAT | flags)` does. */
async function opened(files: BucketFiles, path: string, flags: number): Promise<number> {
  const { parent, name } = await parentOf(files, path);
  const { attributes } = await files.open.create(parent, name, flags);
  return attributes.node;
}

async function write(
  files: BucketFiles,
  { path, offset, text: written, close }: Extract<Step, { do: 'write' }>,
) {
  const node = await opened(files, path, 1);
  await files.open.write(node, Buffer.from(written, 'latin1'), offset);
  if (!close) return;
  await files.open.flush(node);
  await files.open.release(node);
}

describe('a mount', () => {
  it('is a directory for programs, and what they leave is in the bucket', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(anything, { maxLength: 25 }), async (steps) => {
        await using world = await openTestFiles();
        const model = new Model();
        for (const step of steps) await take(world, model, step);
        for (const [path, content] of model.files)
          expect(await contentOf(world.files, path), path).toBe(content.toString('latin1'));
        await world.files.writeLeft(0, { all: true });
        const objects = [...world.bucket.objects].filter(([key]) => !key.endsWith('/'));
        expect(new Map(objects.map(([key, content]) => [key, content.toString('latin1')]))).toEqual(
          new Map([...model.files].map(([key, content]) => [key, content.toString('latin1')])),
        );
        expect(world.failures).toEqual([]);
      }),
      { numRuns: 250 },
    );
  });

  async function take(world: TestFiles, model: Model, step: Step): Promise<void> {
    const { files } = world;
    if (step.do === 'restart') {
      await world.restart();
      // A directory that has no object is forgotten: nobody has removed it.
      for (const path of [...model.directories].sort().reverse())
        if (model.below(path).length === 0 && !world.bucket.objects.has(`${path}/`))
          model.directories.delete(path);
      return;
    }
    const { path } = step;
    const hasParent = model.kind(dirname(path)) === 'directory';
    if (step.do === 'write' || step.do === 'replace') {
      const data = Buffer.from(step.text, 'latin1');
      const result = await asked(() =>
        step.do === 'write' ? write(files, step) : replace(files, path, data),
      );
      expect(result).toBe(hasParent ? undefined : errno.ENOENT);
      if (!hasParent) return;
      if (step.do === 'replace') model.files.delete(path);
      model.write(path, step.do === 'write' ? step.offset : 0, data);
    } else if (step.do === 'truncate') {
      const given = { valid: 8, size: step.size, mode: 0, uid: 0, gid: 0 };
      const result = await asked(async () => void (await files.open.setattr(await at(files, path), given)));
      const old = model.files.get(path);
      expect(result).toBe(old ? undefined : errno.ENOENT);
      if (!old) return;
      const made = Buffer.alloc(step.size);
      old.copy(made);
      model.files.set(path, made);
    } else if (step.do === 'read') {
      expect(await asked(() => contentOf(files, path))).toBe(
        model.files.get(path)?.toString('latin1') ?? errno.ENOENT,
      );
    } else if (step.do === 'unlink') {
      const result = await asked(async () => {
        const { parent, name } = await parentOf(files, path);
        await files.unlink(parent, name, false);
      });
      expect(result).toBe(model.files.delete(path) ? undefined : errno.ENOENT);
    } else if (step.do === 'mkdir') {
      const result = await asked(async () => {
        const { parent, name } = await parentOf(files, path);
        await files.directories.mkdir(parent, name, false);
      });
      expect(result).toBe(
        !hasParent ? errno.ENOENT : model.kind(path) !== undefined ? errno.EEXIST : undefined,
      );
      if (result === undefined) model.directories.add(path);
    } else if (step.do === 'rmdir') {
      const result = await asked(async () => {
        const { parent, name } = await parentOf(files, path);
        await files.rmdir(parent, name, false);
      });
      if (model.kind(path) === undefined) {
        expect(result).toBe(errno.ENOENT);
        return;
      }
      expect(result).toBe(model.below(path).length > 0 ? errno.ENOTEMPTY : undefined);
      if (result === undefined) model.directories.delete(path);
    } else if (step.do === 'list') {
      const names = await asked(() => namesIn(files, path));
      if (model.kind(path) === undefined) {
        expect(names).toBe(errno.ENOENT);
        return;
      }
      const direct = model.below(path).map((one) => one.slice(path.length + 1).split('/')[0]!);
      expect(names).toEqual([...new Set(direct)].sort());
    } else if (step.do === 'rename' || step.do === 'renameDirectory') await rename(files, model, step);
  }

  async function rename(
    files: BucketFiles,
    model: Model,
    { do: what, path, to }: Extract<Step, { do: 'rename' | 'renameDirectory' }>,
  ): Promise<void> {
    const result = await asked(async () => {
      const [from, target] = [await parentOf(files, path), await parentOf(files, to)];
      await files.renames.rename(from, target, { flags: 0, repeated: false });
    });
    const isThere = model.kind(path) === (what === 'rename' ? 'file' : 'directory');
    if (!isThere || model.kind(dirname(to)) !== 'directory') {
      expect(result).toBe(errno.ENOENT);
      return;
    }
    if (path === to) {
      expect(result).toBeUndefined();
      return;
    }
    if (what === 'rename') {
      expect(result).toBeUndefined();
      model.files.set(to, model.files.get(path)!);
      model.files.delete(path);
      return;
    }
    if (to.startsWith(`${path}/`)) {
      expect(result).toBe(errno.EINVAL);
      return;
    }
    if (model.below(to).length > 0) {
      expect(result).toBe(errno.ENOTEMPTY);
      return;
    }
    expect(result).toBeUndefined();
    model.directories.delete(path);
    model.directories.add(to);
    for (const one of model.below(path)) {
      const moved = to + one.slice(path.length);
      const content = model.files.get(one);
      if (content) model.files.set(moved, content);
      else model.directories.add(moved);
      model.files.delete(one);
      model.directories.delete(one);
    }
  }

  it('loses nothing that it has taken, however the bucket fails and the server is killed', async () => {
    const faults = fc.array(fc.constantFrom(undefined, undefined, 'fail', 'lose'), {
      minLength: 1,
      maxLength: 20,
    });
    await fc.assert(
      fc.asyncProperty(fc.array(fc.oneof(...writing), { maxLength: 20 }), faults, async (steps, plan) => {
        await using world = await openTestFiles();
        for (const path of ['d', 'e']) await world.files.directories.mkdir(1, path, false);
        let call = 0;
        const fault = () => {
          const what = plan[call++ % plan.length];
          if (what === 'fail') throw new CayError('unavailable', 'It is away');
          return what;
        };
        const model = new Model();
        for (const step of steps) await takeWithFaults(world, model, step, fault);
        world.bucket.fault = () => undefined;
        await world.restart();
        await world.files.writeLeft(0, { all: true });
        for (const [path, content] of model.files)
          expect(world.bucket.objects.get(path)?.toString('latin1'), path).toBe(content.toString('latin1'));
        expect(world.failures).toEqual([]);
        expect(world.files.spools.bytes).toBe(0);
      }),
      { numRuns: 250 },
    );
  });

  /**
   * What a call has taken counts; one that fails before has changed nothing. What only the close refuses is
   * taken.
   */
  async function takeWithFaults(
    world: TestFiles,
    model: Model,
    step: Step,
    fault: () => 'lose' | undefined,
  ): Promise<void> {
    const { files, bucket } = world;
    if (step.do === 'restart') {
      await world.restart();
      return;
    }
    if (step.do !== 'write' && step.do !== 'replace' && step.do !== 'truncate') return;
    const { path } = step;
    bucket.fault = fault;
    const done = async (work: () => Promise<unknown>) => {
      try {
        await work();
        return true;
      } catch {
        return false;
      }
    };
    let node = 0;
    const flags = step.do === 'replace' ? 1 | OpenFlag.truncate : 1;
    if (!(await done(async () => (node = await opened(files, path, flags))))) return;
    if (step.do === 'replace' || !model.files.has(path)) model.files.set(path, Buffer.alloc(0));
    if (step.do === 'truncate') {
      const given = { valid: 8, size: step.size, mode: 0, uid: 0, gid: 0 };
      if (await done(() => files.open.setattr(node, given))) {
        const made = Buffer.alloc(step.size);
        model.files.get(path)!.copy(made);
        model.files.set(path, made);
      }
    } else {
      const data = Buffer.from(step.text, 'latin1');
      const offset = step.do === 'write' ? step.offset : 0;
      if (await done(() => files.open.write(node, data, offset))) model.write(path, offset, data);
      if (step.do === 'write' && !step.close) return;
    }
    await done(() => files.open.flush(node));
    await done(() => files.open.release(node));
  }
});

async function replace(files: BucketFiles, path: string, data: Buffer): Promise<void> {
  const node = await opened(files, path, 1 | OpenFlag.truncate);
  await files.open.write(node, data, 0);
  await files.open.flush(node);
  await files.open.release(node);
}
