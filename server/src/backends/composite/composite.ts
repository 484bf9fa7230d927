/**
 * Many backends as one: every verb goes to the member that has the sandbox.
 *
 * It stores nothing. Where a sandbox is, its member knows; the caller can note it in advance (`locations`).
 * Members never learn of each other: a spec reaches them without its `platform`, so that a backend has the
 * same sandboxes with a composite before it and without.
 */
import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import {
  abilityOf,
  type AbilityName,
  type Backend,
  type BackendAbilities,
  type CallScope,
  type Freezing,
  type Hibernating,
  type Measuring,
  type Resizing,
  type Sizing,
  type Snapshotting,
  type Suspending,
  type Sweeping,
  type VolumeKeeping,
} from '../backend.ts';
import { requireSandboxId } from '../support/check.ts';
import { compositeSnapshots } from './composite-snapshots.ts';
import { compositeVolumes } from './composite-volumes.ts';
import { leastCapacity } from './least-capacity.ts';
import { locations, type Locations, type Member } from './locations.ts';
import { ownSpec, type Members } from './members.ts';

/** All verbs, each rejecting `unsupported` where the sandbox's member lacks it. */
export type Composite = Backend &
  Resizing &
  Freezing &
  Suspending &
  Snapshotting &
  Hibernating &
  Measuring &
  Sizing &
  Sweeping &
  VolumeKeeping;

export interface CompositeOptions {
  name: string;
  /** The report for clients, made from those of the members. */
  capabilities: Backend['capabilities'];
  /** Abilities of the composite itself. */
  own?: Partial<Pick<BackendAbilities, 'platforms'>>;
  where?: Locations;
}

export function compositeBackend(members: Members, options: CompositeOptions): Composite {
  const { where = locations(members) } = options;

  /** The member that has it, or the fallback, which answers that it does not exist. */
  async function at(id: SandboxId, scope?: CallScope): Promise<Member> {
    const found = await where.sandbox(id, scope);
    return found ?? { name: members.fallback, backend: await members.get(members.fallback) };
  }

  async function able<A extends AbilityName>(
    id: SandboxId,
    ability: A,
    verb: string,
    scope: CallScope | undefined,
  ): Promise<BackendAbilities[A]> {
    const { name, backend } = await at(id, scope);
    const found = backend.ability(ability);
    if (found) return found;
    throw new CayError(
      'unsupported',
      `Cannot ${verb} sandbox "${id}": ${members.noun} "${name}" cannot do that`,
      { details: { [members.noun]: name } },
    );
  }

  /**
   * Where a sandbox of this spec is or will be. A named member is not looked for on the others, which may be
   * away.
   */
  async function placeOf(id: SandboxId, spec: SandboxSpec, scope: CallScope = {}): Promise<Member> {
    requireSandboxId(id);
    const wanted = members.target(spec, scope);
    const known =
      wanted === undefined || (where.noted(id) ?? wanted) !== wanted
        ? await where.sandbox(id, scope)
        : undefined;
    if (known && wanted !== undefined && (await known.backend.observe(id, scope)).phase !== 'absent') {
      throw new CayError(
        'already_exists',
        `Cannot make sandbox "${id}" on ${members.noun} "${wanted}": it exists on "${known.name}"`,
        { details: { [members.noun]: known.name } },
      );
    }
    const name = wanted ?? known?.name ?? members.fallback;
    const place = { name, backend: await members.get(name) };
    where.note(id, name);
    return place;
  }

  return {
    ...compositeSnapshots({ members, where, placeOf }),
    ...compositeVolumes(members, where),
    name: options.name,
    capabilities: options.capabilities,

    ability(name) {
      const all = { ...options.own, ...offered(this, members) };
      return abilityOf(all, name);
    },

    async validate(spec, scope = {}) {
      const backend = await members.get(members.target(spec, scope) ?? members.fallback);
      await backend.validate(ownSpec(spec), scope);
    },

    async ensure(id, spec, scope) {
      const { backend } = await placeOf(id, spec, scope);
      return backend.ensure(id, ownSpec(spec), scope);
    },

    observe: async (id, scope) => (await at(id, scope)).backend.observe(id, scope),

    async list(scope) {
      const answers = await members.each((backend) => backend.list(scope), scope);
      return answers.flatMap((each) => {
        if ('away' in each) throw each.away;
        for (const { id } of each.answer) where.note(id, each.name);
        return each.answer;
      });
    },

    watch: (scope = {}) => members.changes.subscribe({ signal: scope.signal }),
    connect: async (id, scope) => (await at(id, scope)).backend.connect(id, scope),
    stats: async (id, scope) => (await at(id, scope)).backend.stats(id, scope),
    stop: async (id, scope) => (await at(id, scope)).backend.stop(id, scope),

    async remove(id, scope) {
      await (await at(id, scope)).backend.remove(id, scope);
      where.forget(id);
    },

    async resize(id, limits, scope) {
      await (await able(id, 'resize', 'change the limits of', scope)).resize(id, limits, scope);
    },

    async freeze(id, scope) {
      await (await able(id, 'freeze', 'freeze', scope)).freeze(id, scope);
    },

    async thaw(id, scope) {
      await (await able(id, 'freeze', 'thaw', scope)).thaw(id, scope);
    },

    suspend: async (id, scope) => (await able(id, 'suspend', 'suspend', scope)).suspend(id, scope),

    hibernate: async (id, scope) =>
      (await able(id, 'memorySnapshots', 'hibernate', scope)).hibernate(id, scope),

    async capacity(scope) {
      const answers = await members.each(
        async (backend) => (await backend.ability('capacity')?.capacity(scope)) ?? {},
        scope,
      );
      return leastCapacity(answers.flatMap((each) => ('answer' in each ? [each.answer] : [])));
    },

    async sweep(sweepOptions) {
      const answers = await members.each(
        async (backend) => (await backend.ability('sweep')?.sweep(sweepOptions)) ?? [],
        sweepOptions,
      );
      return answers.flatMap((each) => ('answer' in each ? each.answer : []));
    },

    spaceOf: async (id, scope) => (await able(id, 'space', 'measure', scope)).spaceOf(id, scope),

    close: () => members.close(),
  };
}

/** What some member can do. While a member is not open it may have any ability. */
function offered(composite: Composite, members: Members): Partial<Omit<BackendAbilities, 'platforms'>> {
  const { backends, complete } = members.opened();
  const some = (name: AbilityName) =>
    !complete || backends.some((backend) => backend.ability(name) !== undefined);
  return {
    ...(some('resize') && { resize: composite }),
    ...(some('freeze') && { freeze: composite }),
    ...(some('suspend') && { suspend: composite }),
    ...(some('snapshots') && { snapshots: composite }),
    ...(some('memorySnapshots') && { memorySnapshots: composite }),
    ...(some('capacity') && { capacity: composite }),
    ...(some('space') && { space: composite }),
    ...(some('sweep') && { sweep: composite }),
    ...(some('volumes') && { volumes: composite }),
  };
}
