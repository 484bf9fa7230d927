/** Runs one step in the sandbox of a build, and returns the state for the next. */
import { posix } from 'node:path';
import { AbsolutePathSchema, CayError, EnvSchema, UserSchema } from '@cay/sdk/protocol';
import type { BuildFiles } from './build-files.ts';
import type { BuildStep } from './build.ts';
import { placeFiles } from './place-files.ts';
import { loginShell, requireRun, type RunIn, type Surroundings } from './run-in.ts';

export async function runStep(
  run: RunIn,
  step: BuildStep,
  files: Pick<BuildFiles, 'read'>,
  project: string,
): Promise<Surroundings> {
  const { surroundings } = run;
  switch (step.type) {
    case 'run':
      await requireRun(
        { ...run, surroundings: { ...surroundings, user: step.user ?? surroundings.user } },
        loginShell(step.command),
        step.command,
      );
      return surroundings;
    case 'copy':
      await placeFiles(run, await files.read(project, step.files), step);
      return surroundings;
    case 'write':
      await run.guest.files('root').write(step.path, step.content, { mode: step.mode, signal: run.signal });
      return surroundings;
    case 'env': {
      const env = { ...surroundings.env };
      for (const [name, value] of step.variables)
        env[name] = await expanded({ ...run, surroundings: { ...surroundings, env } }, name, value);
      return { ...surroundings, env: valid(EnvSchema, env, 'The environment') };
    }
    case 'workdir': {
      const workdir = valid(
        AbsolutePathSchema,
        posix.resolve(surroundings.workdir, step.path),
        'The working directory',
      );
      const make = 'test -d "$1" || { mkdir -p -- "$1" && chown -- "$2:" "$1"; }';
      const asRoot = { ...run, surroundings: { ...surroundings, user: 'root', workdir: '/' } };
      await requireRun(
        asRoot,
        ['/bin/bash', '-c', make, 'workdir', workdir, surroundings.user.split(':')[0]!],
        `WORKDIR ${step.path}`,
      );
      return { ...surroundings, workdir };
    }
    case 'user': {
      const user = valid(UserSchema, step.user, 'The user');
      // This fails if the user does not exist.
      await requireRun(
        { ...run, surroundings: { ...surroundings, user, workdir: '/' } },
        ['/bin/true'],
        `USER ${user}`,
      );
      return { ...surroundings, user };
    }
  }
}

/** The shell expands variables; its other special characters are quoted. */
async function expanded(run: RunIn, name: string, value: string): Promise<string> {
  if (!value.includes('$')) return value;
  const escaped = value.replaceAll(/[\\"`]|\$\(/g, '\\$&');
  return requireRun({ ...run, log: undefined }, loginShell(`printf %s "${escaped}"`), `ENV ${name}`);
}

function valid<T>(
  schema: {
    safeParse(
      value: unknown,
    ): { success: true; data: T } | { success: false; error: { issues: { message: string }[] } };
  },
  value: unknown,
  what: string,
): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new CayError('invalid_argument', `${what} ${parsed.error.issues[0]?.message ?? 'is not valid'}`);
}
