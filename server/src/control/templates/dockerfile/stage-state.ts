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

/** The same for one name, without putting all together. */
export const variableOf =
  ({ config, args }: StageState) =>
  (name: string): string | undefined =>
    [config.env, args].find((variables) => Object.hasOwn(variables, name))?.[name];

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

const MOST_ENTRIES = 4096;
const MOST_CHARACTERS = 256 * 1024;

/**
 * Throws a plain `Error` for a state that has become too large: it is kept with each step, and the text of a
 * Dockerfile may mean much more than it has characters.
 */
export function requireBounded({ config, args }: StageState): void {
  let entries = 0;
  let characters = 0;
  const count = (value: unknown): void => {
    if (typeof value === 'string') characters += value.length;
    else if (typeof value === 'object' && value !== null)
      for (const [name, each] of Object.entries(value)) {
        entries++;
        characters += name.length;
        count(each);
      }
  };
  count(config);
  count(args);
  if (entries > MOST_ENTRIES || characters > MOST_CHARACTERS)
    throw new Error(
      `makes what the stage has said larger than ${MOST_ENTRIES} values, or ${MOST_CHARACTERS} characters`,
    );
}

export function configured(state: StageState, change: Partial<TemplateConfig>): StageState {
  return { ...state, config: { ...state.config, ...change } };
}
