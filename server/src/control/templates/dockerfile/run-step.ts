/** RUN: a command in the sandbox of the stage. */
import { randomName } from '../../../lib/random-name.ts';
import { contentDigest, contextMatches, contextSource, sandboxSources } from '../builds/copy-files.ts';
import { requireRun, runIn } from '../builds/run-in.ts';
import type { Step } from '../builds/step.ts';
import { execForm } from './arguments.ts';
import { dockerfileError, type Instruction } from './dockerfile.ts';
import { expanderOf, shownOf, type StepOptions } from './step-options.ts';
import { PROXY_ARGS } from './plan-stages.ts';
import { parseMount, withMounts, type Mount } from './run-mounts.ts';
import { DEFAULT_SHELL, surroundingsOf, within, type StageState } from './stage-state.ts';

/** Ends what the command left running: the next one begins without it, as in a container of its own. */
const END_THE_REST = ['/bin/sh', '-c', 'kill -9 -1 2>/dev/null; :'];

export function runStep(instruction: Instruction, options: StepOptions): Step<StageState> {
  const { rest, heredocs, flags, line } = instruction;
  for (const { name, value } of flags) {
    if (name === 'network' && value === 'default') continue;
    if (name === 'network' || name === 'security')
      throw dockerfileError(
        line,
        `RUN --${name}=${(value ?? '').slice(0, 40)} is not there`,
        'the network policy of the build decides what steps reach',
      );
    if (name !== 'mount') throw dockerfileError(line, `RUN has no flag --${name}`);
  }
  if (rest === '') throw dockerfileError(line, 'RUN needs a command');
  const mountsOf = (state: StageState): Mount[] => {
    const expand = expanderOf(instruction, options, state);
    return flags.flatMap(({ name, value }) =>
      name === 'mount' ? [parseMount(expand(value ?? ''), instruction)] : [],
    );
  };

  async function bindKey(mount: Mount): Promise<unknown> {
    if (mount.type !== 'bind') return [mount.type, mount.target];
    if (mount.from !== undefined)
      return [mount.target, mount.source, (await options.sources.stage(mount.from)).key];
    const context = await options.sources.context();
    return [
      mount.target,
      mount.source,
      await contentDigest(context, await contextMatches(context, mount.source)),
    ];
  }

  return {
    shown: shownOf(instruction),
    touches: true,
    async key(state) {
      const mounts: unknown[] = [];
      for (const mount of mountsOf(await state())) mounts.push(await bindKey(mount));
      return [rest, flags, heredocs, mounts];
    },
    async run(state, { guest: enter, log, signal }) {
      const guest = await enter();
      const surroundings = surroundingsOf(state);
      for (const name of PROXY_ARGS) {
        const given = options.args[name];
        if (given !== undefined) surroundings.env[name] ??= given;
      }
      const shell = state.config.shell.length > 0 ? state.config.shell : DEFAULT_SHELL;
      await withMounts(
        mountsOf(state),
        {
          guest,
          signal,
          secrets: options.secrets,
          resolve: (path) => within(state, path),
          async sources(mount) {
            if (mount.from !== undefined) {
              const stage = await options.sources.stage(mount.from);
              return sandboxSources(await options.sources.guestOf(stage), mount.source, signal);
            }
            const context = await options.sources.context();
            return (await contextMatches(context, mount.source)).map((entry) =>
              contextSource(context, entry, mount.source),
            );
          },
        },
        async (env) => {
          const run = {
            guest,
            signal,
            log,
            surroundings: { ...surroundings, env: { ...surroundings.env, ...env } },
          };
          const { argv, script } = commandOf(instruction, shell);
          const files = guest.files('root');
          if (script) await files.write(script.path, Buffer.from(script.text), { mode: 0o755, signal });
          try {
            await requireRun(run, argv, rest);
          } finally {
            if (script) await files.remove(script.path).catch(() => {});
          }
        },
      );
      await runIn(
        { guest, signal, surroundings: { env: {}, workdir: '/', user: 'root' } },
        END_THE_REST,
      ).catch(() => {
        // An image without a shell seldom leaves anything running.
      });
      return state;
    },
  };
}

interface Command {
  argv: string[];
  /** A script with an interpreter of its own, which is run as a file. */
  script?: { path: string; text: string };
}

function commandOf({ rest, heredocs }: Instruction, shell: readonly string[]): Command {
  const exec = heredocs.length === 0 ? execForm(rest) : undefined;
  if (exec && exec.length > 0) return { argv: exec };
  const [only] = heredocs;
  if (only && heredocs.length === 1 && /^<<-?\S+$/.test(rest)) {
    const text = only.chomps ? only.content.replaceAll(/^\t+/gm, '') : only.content;
    if (!text.startsWith('#!')) return { argv: [...shell, text] };
    const path = `/tmp/.cay-run-${randomName(12)}`;
    return { argv: [path], script: { path, text } };
  }
  const documents = heredocs.map(({ name, content }) => `\n${content}${name}`).join('');
  return { argv: [...shell, rest + documents] };
}
