/**
 * Abilities that not every backend has. Each is a small interface; `Backend.ability(name)` is the one way to
 * ask for it. Where clients see an ability of the same name in `capabilities()`, it is true only if this one
 * is there.
 */
import type { Freezing } from './freezing.ts';
import type { Hibernating } from './hibernating.ts';
import type { ImageKeeping } from './images.ts';
import type { Measuring } from './measuring.ts';
import type { Platforms } from './platforms.ts';
import type { Resizing } from './resizing.ts';
import type { Sizing } from './sizing.ts';
import type { Snapshotting } from './snapshotting.ts';
import type { Suspending } from './suspending.ts';
import type { Sweeping } from './sweeping.ts';
import type { VolumeKeeping } from './volumes.ts';

export interface BackendAbilities {
  resize: Resizing;
  freeze: Freezing;
  suspend: Suspending;
  snapshots: Snapshotting;
  memorySnapshots: Hibernating;
  capacity: Measuring;
  space: Sizing;
  sweep: Sweeping;
  images: ImageKeeping;
  volumes: VolumeKeeping;
  platforms: Platforms;
}

export type AbilityName = keyof BackendAbilities;

/** Picks one of the abilities that a driver has. */
export function abilityOf<A extends AbilityName>(
  have: { [Name in AbilityName]?: BackendAbilities[Name] | undefined },
  name: A,
): BackendAbilities[A] | undefined {
  return have[name];
}
