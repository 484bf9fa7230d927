import type { Records } from '../../../records/records.ts';
import type { BuildFiles } from './build-files.ts';
import type { BuildControl } from './run-build.ts';
import type { StepCacheOptions } from './step-cache.ts';

/** What the verbs of builds share. */
export interface BuildParts {
  control: BuildControl;
  records: Records;
  files: BuildFiles;
  /** The timeout of a build, and the longest that one may ask for. */
  timeoutMs: number;
  cache: Pick<StepCacheOptions, 'maxSteps' | 'maxBytes'>;
  /** Aborted when the server stops. */
  closing: AbortSignal;
  now(): number;
  onError(error: unknown): void;
}
