/** What a stage of a Dockerfile has said so far. */
import { posix } from 'node:path';
import { NO_TEMPLATE_CONFIG, type TemplateConfig } from '@cay/sdk/protocol';
import type { Surroundings } from '../builds/run-in.ts';

export interface StageState {
  config: TemplateConfig;
  /** ARG that have a value. */
  args: Record<string, string>;
  /** The stage itself has a CMD: an ENTRYPOINT then does not take it away. */
  hasOwnCmd: boolean;
}

export const DEFAULT_SHELL = ['/bin/sh', '-c'];
export const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

export const EMPTY_STATE: StageState = { config: NO_TEMPLATE_CONFIG, args: {}, hasOwnCmd: false };

/** ENV wins over ARG of the same name. */
export const variablesOf = ({ config, args }: StageState): Record<string, string> => ({
  ...args,
  ...config.env,
});

/** How RUN runs: as root unless USER says otherwise. */
export function surroundingsOf(state: StageState): Surroundings {
  const { config } = state;
  return {
    env: { PATH: DEFAULT_PATH, ...variablesOf(state) },
    workdir: config.workdir || '/',
    user: config.user || 'root',
  };
}

export const within = ({ config: { workdir } }: StageState, path: string): string =>
  posix.resolve(workdir || '/', path);

export function configured(state: StageState, change: Partial<TemplateConfig>): StageState {
  return { ...state, config: { ...state.config, ...change } };
}
