/** What a setting is: a zod schema of its value as text, and its help. */
import { z } from 'zod';

/** The headings of the help and of the reference, in their order. */
export const GROUPS = {
  server: 'Server',
  backends: 'Backends',
  docker: 'Docker',
  kubernetes: 'Kubernetes',
  images: 'Images',
  policy: 'What clients may ask for',
  network: 'What sandboxes may reach',
  quotas: 'What projects may use',
  machine: 'How full the machine may become',
  traffic: 'Connections and calls',
  events: 'Events and webhooks',
  storage: 'Archives and buckets',
  records: 'Records and secrets',
  tracing: 'Tracing',
} as const;

/** How a list is given, for the help. */
export const LISTED = 'with commas, or repeated';

export interface About {
  group: keyof typeof GROUPS;
  help: string;
  /**
   * What the value is called in the help, without brackets. Absent: the flag has no value, it is on or off.
   */
  value?: string;
  /** False: there is no flag. Default: the name in kebab-case. */
  flag?: string | false;
  /** False: there is no variable. Default: `CAY_` and the name in upper case. */
  variable?: string | false;
  /** A variable of other programs that is read where ours is not set. */
  fallback?: string;
  /** As text, as if it had been given. */
  default?: string;
  /** What the help says about a default that is found out later. */
  usually?: string;
  choices?: readonly string[];
  /** The flag may be repeated. The schema takes an array of texts. */
  repeat?: true;
  /** It names a file or a directory: relative ones are those of the process that was given it. */
  path?: true;
  /**
   * It is never shown, and never an argument of a process that the server or the command line starts. The
   * server removes its variable from the environment that its own children get.
   */
  secret?: true;
}

const ABOUT = z.registry<About>();

type Kind = z.ZodType<unknown, string> | z.ZodType<unknown, string[]>;

/** A setting with a default. */
export function setting<S extends Kind>(kind: S, about: About & { default: string }): z.ZodPrefault<S>;
/** A setting that may be absent. */
export function setting<S extends Kind>(kind: S, about: About): z.ZodOptional<S>;
export function setting(kind: z.ZodType, about: About): z.ZodType {
  const schema = about.default === undefined ? kind.optional() : kind.prefault(about.default);
  return schema.register(ABOUT, about);
}

/** A setting by its name in the schema. */
export interface Described extends About {
  name: string;
  /** `--log-level` */
  long: string | undefined;
  /** `CAY_LOG_LEVEL` */
  env: string | undefined;
}

export function describe(name: string, schema: z.ZodType): Described {
  const about = ABOUT.get(schema);
  if (!about) throw new Error(`The setting "${name}" is not described`);
  const words = name.split(/(?=[A-Z])/).map((word) => word.toLowerCase());
  return {
    ...about,
    name,
    long: about.flag === false ? undefined : (about.flag ?? `--${words.join('-')}`),
    env: about.variable === false ? undefined : (about.variable ?? `CAY_${words.join('_').toUpperCase()}`),
  };
}
