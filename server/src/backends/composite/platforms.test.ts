import { CayError, SandboxSpecSchema, newId, type SandboxSpecInput } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { collect } from '../../guest/collect.ts';
import type { Backend } from '../backend.ts';
// The router is made of other backends, so its tests bring some.
// oxlint-disable-next-line no-restricted-imports
import { memoryBackend } from '../memory/memory.ts';
import { parsePlatformRules } from './platform-rules.ts';
import type { PlatformSource } from './platform-members.ts';
import { platformsBackend, type PlatformsBackend } from './platforms.ts';

const spec = (input: SandboxSpecInput = {}) => SandboxSpecSchema.parse(input);
const at = (name: string, backend: Backend): PlatformSource => ({ name, open: async () => backend });

/** The backend without its verbs beyond the contract's core, as some are. */
function plain(backend: Backend): Backend {
  const { name, capabilities, validate, ensure, observe, list, watch, connect, stats, stop, remove, close } =
    backend;
  const core = {
    name,
    capabilities,
    validate,
    ensure,
    observe,
    list,
    watch,
    connect,
    stats,
    stop,
    remove,
    close,
  };
  return { ...core, ability: () => undefined };
}

/** A backend that does not answer as long as `away` is set. */
function leaving(backend: Backend): { backend: Backend; gone: { away: boolean } } {
  const gone = { away: false };
  const proxy = new Proxy(backend, {
    get(target, name) {
      const value = Reflect.get(target, name) as unknown;
      if (typeof value !== 'function' || name === 'watch' || name === 'close' || name === 'ability')
        return value;
      return (...values: unknown[]) =>
        gone.away
          ? Promise.reject(new CayError('unavailable', 'nobody answers'))
          : (value as (...all: unknown[]) => unknown)(...values);
    },
  });
  return { backend: proxy, gone };
}

const opened: PlatformsBackend[] = [];
async function route(...sources: PlatformSource[]): Promise<PlatformsBackend> {
  const router = await platformsBackend({ platforms: sources });
  opened.push(router);
  return router;
}
afterEach(async () => {
  vi.useRealTimers();
  for (const router of opened.splice(0)) await router.close();
});

describe('choosing a platform', () => {
  const rules = parsePlatformRules('gpu=true:big, team:small');
  const pick = async () =>
    opened[
      opened.push(
        await platformsBackend({
          platforms: ['usual', 'big', 'small'].map((name) => at(name, memoryBackend())),
          rules,
        }),
      ) - 1
    ]!;

  it('goes by name, then by the first rule that fits the labels, then by default', async () => {
    const router = await pick();
    expect(router.platforms.choose({ platform: 'small', labels: { gpu: 'true' } })).toBe('small');
    expect(router.platforms.choose({ labels: { gpu: 'true', team: 'a' } })).toBe('big');
    expect(router.platforms.choose({ labels: { gpu: 'false', team: 'a' } })).toBe('small');
    expect(router.platforms.choose({ labels: { gpu: 'false' } })).toBe('usual');
  });

  it('refuses a name that is none, and says which there are', async () => {
    const router = await pick();
    expect(() => router.platforms.choose({ platform: 'moon', labels: {} })).toThrow(
      'Platform "moon" is unknown',
    );
    for (const verb of [
      router.validate(spec({ platform: 'moon' })),
      router.ensure(newId('sbx'), spec({ platform: 'moon' })),
    ]) {
      await expect(verb).rejects.toMatchObject({
        code: 'not_found',
        hint: 'known platforms: usual, big, small',
      });
    }
  });

  it('refuses rules that cannot be, or name a platform that is none', async () => {
    for (const text of ['gpu', 'gpu=true', '=a:b', 'a=b:UPPER', 'a b=c:d'])
      expect(() => parsePlatformRules(text)).toThrow('is not a rule');
    expect(parsePlatformRules('')).toEqual([]);
    const wrong = platformsBackend({ platforms: [at('usual', memoryBackend())], rules });
    await expect(wrong).rejects.toMatchObject({ code: 'invalid_argument' });
  });
});

describe('sandboxes of several platforms', () => {
  it('are each on the one that was named, and listed together', async () => {
    const [one, other] = [memoryBackend(), memoryBackend()];
    const router = await route(at('one', one), at('other', other));
    const [here, there] = [newId('sbx'), newId('sbx')];
    await router.ensure(here, spec());
    await router.ensure(there, spec({ platform: 'other' }));
    expect((await one.list()).map(({ id }) => id)).toEqual([here]);
    expect((await other.list()).map(({ id }) => id)).toEqual([there]);
    expect((await router.list()).map(({ id }) => id).sort()).toEqual([here, there].sort());
    const handle = await (
      await router.connect(there)
    ).exec({ id: 'a', argv: ['echo', 'hi'], env: {}, workdir: '/', user: 'user' });
    expect((await collect(handle, { maxBytes: 100 })).stdout.toString()).toBe('hi\n');
    await expect(router.ensure(there, spec({ platform: 'one' }))).rejects.toMatchObject({
      code: 'already_exists',
    });
  });

  it('are found by another router, and are the same without one', async () => {
    const [one, other] = [memoryBackend(), memoryBackend()];
    const id = newId('sbx');
    await (await route(at('one', one), at('other', other))).ensure(id, spec({ platform: 'other' }));
    const next = await route(at('one', one), at('other', other));
    expect(await next.observe(id)).toMatchObject({ phase: 'ready', incarnation: 1 });
    expect(await next.ensure(id, spec())).toMatchObject({ incarnation: 1 });
    expect(await other.ensure(id, spec({ platform: 'other' }))).toMatchObject({ incarnation: 1 });
  });

  it('tell of what happens to them, whichever has them', async () => {
    const [one, other] = [memoryBackend(), memoryBackend()];
    const router = await route(at('one', one), at('other', other));
    const ids = [newId('sbx'), newId('sbx')];
    await router.ensure(ids[0]!, spec());
    await router.ensure(ids[1]!, spec({ platform: 'other' }));
    const changes = router.watch();
    one.crash(ids[0]!);
    other.crash(ids[1]!);
    const seen: string[] = [];
    for await (const { id, phase } of changes) {
      if (phase === 'failed') seen.push(id);
      if (seen.length === 2) break;
    }
    expect(seen.sort()).toEqual(ids.sort());
  });

  it('refuse what their platform lacks, naming it', async () => {
    const router = await route(at('whole', memoryBackend()), at('plain', plain(memoryBackend())));
    const [whole, lacking] = [newId('sbx'), newId('sbx')];
    await router.ensure(whole, spec());
    await router.ensure(lacking, spec({ platform: 'plain' }));
    await router.freeze(whole);
    await router.thaw(whole);
    await router.resize(whole, { cpus: 1 });
    await router.snapshot(whole, newId('snap'));
    for (const verb of [
      router.freeze(lacking),
      router.thaw(lacking),
      router.resize(lacking, { cpus: 1 }),
      router.hibernate(lacking),
      router.hibernate(whole),
      router.snapshot(lacking, newId('snap')),
      router.importSnapshot(newId('snap'), (async function* () {})(), { platform: 'plain' }),
    ]) {
      await expect(verb).rejects.toMatchObject({
        code: 'unsupported',
        message: expect.stringMatching(/platform "(plain|whole)"/),
      });
    }
    const { platforms } = await router.capabilities();
    expect(platforms!.map(({ name }) => name)).toEqual(['whole', 'plain']);
    expect(await router.sweep()).toEqual([]);
    expect(await router.capacity()).toEqual({});
  });
});

describe('snapshots of several platforms', () => {
  it('are where their sandbox is, and so is what is made of them', async () => {
    const [one, other] = [memoryBackend(), memoryBackend()];
    const router = await route(at('one', one), at('other', other));
    const [here, there, child] = [newId('sbx'), newId('sbx'), newId('sbx')];
    await router.ensure(here, spec());
    await router.ensure(there, spec({ platform: 'other' }));
    const [near, far] = [newId('snap'), newId('snap')];
    await router.snapshot(here, near);
    expect(await router.snapshot(there, far)).toMatchObject({ spec: { platform: 'other' } });
    await router.clone(child, spec(), far);
    expect((await other.observe(child)).phase).toBe('stopped');
    await router.ensure(child, spec());
    expect((await other.observe(child)).phase).toBe('ready');

    const refused = {
      code: 'failed_precondition',
      message: expect.stringContaining('is on platform "other"') as string,
    };
    await expect(router.clone(newId('sbx'), spec({ platform: 'one' }), far)).rejects.toMatchObject(refused);
    await expect(router.rollback(here, far)).rejects.toMatchObject(refused);
    await expect(Array.fromAsync(router.changes(near, far))).rejects.toMatchObject(refused);

    // As an archive one moves.
    const moved = newId('snap');
    await router.importSnapshot(moved, router.exportSnapshot(far), { platform: 'one' });
    await router.rollback(here, moved);
    expect((await router.snapshots()).map(({ id }) => id).sort()).toEqual([near, far, moved].sort());
  });
});

describe('a platform that is away', () => {
  it('says nothing of what is on it, and leaves the others alone', async () => {
    const { backend: shaky, gone } = leaving(memoryBackend());
    const router = await route(at('steady', memoryBackend()), at('shaky', shaky));
    const [here, there, nowhere] = [newId('sbx'), newId('sbx'), newId('sbx')];
    await router.ensure(here, spec());
    await router.ensure(there, spec({ platform: 'shaky' }));
    gone.away = true;
    for (const verb of [
      router.observe(there),
      router.remove(there),
      router.list(),
      router.observe(nowhere),
      router.remove(nowhere),
    ]) {
      await expect(verb).rejects.toMatchObject({ code: 'unavailable' });
    }
    expect(await router.observe(here)).toMatchObject({ phase: 'ready' });
    await router.remove(here);
    await router.ensure(newId('sbx'), spec({ platform: 'steady' }));
    const { platforms, abilities } = await router.capabilities();
    expect(abilities.freeze).toBe(true);
    expect(platforms).toMatchObject([{ name: 'steady' }, { name: 'shaky', away: 'nobody answers' }]);
    gone.away = false;
    expect(await router.observe(there)).toMatchObject({ phase: 'ready' });
    expect(await router.observe(nowhere)).toMatchObject({ phase: 'absent' });
  });

  it('when it is the default promises nothing, and others can be named', async () => {
    const { backend: shaky, gone } = leaving(memoryBackend());
    const router = await route(at('shaky', shaky), at('steady', memoryBackend()));
    gone.away = true;
    const { abilities, notes, runtimes } = await router.capabilities();
    expect(Object.values(abilities)).not.toContain(true);
    expect(notes.isolation).toContain('"shaky" does not answer');
    expect(runtimes).toEqual(['memory']);
    await router.ensure(newId('sbx'), spec({ platform: 'steady' }));
    await expect(router.ensure(newId('sbx'), spec())).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('at the start is opened as soon as it is there, and watched from then on', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'setTimeout', 'performance'] });
    const late = memoryBackend();
    const id = newId('sbx');
    await late.ensure(id, spec());
    let there = false;
    const errors: unknown[] = [];
    const router = await platformsBackend({
      platforms: [
        at('steady', memoryBackend()),
        {
          name: 'late',
          async open() {
            if (!there) throw new CayError('unavailable', 'not yet', { hint: 'wait' });
            return late;
          },
        },
      ],
      onError: (error) => errors.push(error),
    });
    opened.push(router);
    expect(errors).toMatchObject([{ code: 'unavailable' }]);
    router.platforms.place(id, 'late');
    await expect(router.observe(id)).rejects.toMatchObject({
      code: 'unavailable',
      message: 'Platform "late" cannot be reached: not yet',
      hint: 'wait',
    });
    // A sandbox with a known platform need not wait for it.
    await router.ensure(newId('sbx'), spec({ platform: 'steady' }));
    there = true;
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await router.observe(id)).toMatchObject({ phase: 'ready' });
    const changes = router.watch();
    late.crash(id);
    expect((await changes[Symbol.asyncIterator]().next()).value).toMatchObject({ id, phase: 'failed' });
  });

  it('differs from one that is set up wrongly, and from one that is not there any more', async () => {
    const closed = vi.fn<() => Promise<void>>(async () => {});
    const wrong = platformsBackend({
      platforms: [
        at('fine', { ...memoryBackend(), close: closed }),
        { name: 'wrong', open: () => Promise.reject(new CayError('failed_precondition', 'no such setting')) },
      ],
    });
    await expect(wrong).rejects.toMatchObject({ code: 'failed_precondition' });
    expect(closed).toHaveBeenCalledOnce();
    const router = await route(at('fine', memoryBackend()));
    const id = newId('sbx');
    router.platforms.place(id, 'former');
    await expect(router.observe(id)).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('"former", which this server does not have') as string,
    });
  });
});
