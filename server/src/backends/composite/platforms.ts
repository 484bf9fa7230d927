/** Several backends as the named platforms of one server: a composite that is routed by platform. */
import { ABILITIES, CayError, type Ability, type Capabilities, type Platform } from '@cay/sdk/protocol';
import type { Backend, CallScope, Platforms } from '../backend.ts';
import { compositeBackend, type Composite } from './composite.ts';
import { locations } from './locations.ts';
import { openPlatformMembers, type PlatformMembers, type PlatformSource } from './platform-members.ts';
import { platformByLabels, type PlatformRule } from './platform-rules.ts';

export interface PlatformsOptions {
  /** The first is the default. */
  platforms: readonly PlatformSource[];
  /** The first that matches chooses for a sandbox that names no platform. */
  rules?: readonly PlatformRule[];
  onError?(error: unknown): void;
}

export interface PlatformsBackend extends Composite {
  readonly platforms: Platforms;
}

export async function platformsBackend({
  platforms: sources,
  rules = [],
  onError = () => {},
}: PlatformsOptions): Promise<PlatformsBackend> {
  const names = sources.map(({ name }) => name);
  const unknown = rules.find(({ platform }) => !names.includes(platform));
  if (unknown) {
    throw new CayError(
      'invalid_argument',
      `The rule for label "${unknown.label}" names platform "${unknown.platform}", which is unknown`,
      { hint: `known platforms: ${names.join(', ')}` },
    );
  }
  const members = await openPlatformMembers(sources, onError);
  const where = locations(members);
  const platforms: Platforms = {
    names: members.names,
    get: members.get,
    nameOf: (platform) => members.names.find((name) => members.openedAs(name) === platform),
    place: where.note,
    choose: ({ platform, labels }) =>
      platform === undefined
        ? (platformByLabels(rules, labels) ?? members.fallback)
        : members.require(platform),
    measures: (name) => members.openedAs(name)?.ability('capacity') !== undefined,
  };
  const composite = compositeBackend(members, {
    name: 'router',
    capabilities: (scope) => capabilitiesOf(members, scope),
    own: { platforms },
    where,
  });
  return Object.assign(composite, { platforms });
}

/** Runtimes and templates of all platforms; the abilities of the default. */
async function capabilitiesOf(members: PlatformMembers, scope?: CallScope): Promise<Capabilities> {
  const answers = await members.each((backend: Backend) => backend.capabilities(scope));
  const all = answers.map(({ name, ...each }): Platform =>
    'answer' in each ? { name, capabilities: each.answer } : { name, away: each.away.message },
  );
  const known = all.flatMap(({ capabilities }) => (capabilities ? [capabilities] : []));
  const { abilities, notes } = all[0]!.capabilities ?? nothing(all[0]!);
  return {
    backend: 'router',
    runtimes: [...new Set(known.flatMap(({ runtimes }) => runtimes))],
    templates: [...new Set(known.flatMap(({ templates }) => templates))],
    abilities,
    notes,
    platforms: all,
  };
}

/** A platform that does not answer promises nothing. */
function nothing({ name, away }: Platform): Pick<Capabilities, 'abilities' | 'notes'> {
  const each = <T>(value: T) =>
    Object.fromEntries(ABILITIES.map((ability) => [ability, value])) as Record<Ability, T>;
  return { abilities: each(false), notes: each(`Platform "${name}" does not answer: ${away}`) };
}
