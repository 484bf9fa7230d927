/** COPY and ADD. */
import {
  archiveSource,
  contentDigest,
  contextMatches,
  contextSource,
  packingOf,
  placeSources,
  sandboxSources,
  textSource,
  type Source,
} from '../builds/copy-files.ts';
import type { Step } from '../builds/step.ts';
import { execForm } from './arguments.ts';
import { dockerfileError, type Instruction } from './dockerfile.ts';
import { expanderOf, shownOf, type StepOptions } from './step-options.ts';
import { expandText, matchingBudget } from './expand-word.ts';
import { ownerOf } from './owner-of.ts';
import { rawWords } from './parse-dockerfile.ts';
import { said } from './plan-stages.ts';
import { variableOf, within, type StageState } from './stage-state.ts';

const ACCEPTED = ['from', 'chown', 'chmod', 'link'];
const REMOTE = /^(?:https?|ftp|git|ssh):\/\/|^git@/i;
const MOST_SOURCES = 1000;
const LONGEST_SOURCE = 4096;

interface Wanted {
  sources: string[];
  target: string;
  chown?: string;
  mode?: number;
  from?: string;
  heredocs: { name: string; text: string }[];
}

export function copyStep(instruction: Instruction, options: StepOptions): Step<StageState> {
  const { name, flags, heredocs, line } = instruction;
  for (const flag of flags) {
    const known = ACCEPTED.includes(flag.name) && !(flag.name === 'from' && name === 'ADD');
    if (!known)
      throw dockerfileError(
        line,
        `${name} --${flag.name} is not there`,
        `there are ${ACCEPTED.map((each) => `--${each}`).join(', ')}`,
      );
  }
  const flagOf = (wanted: string) => flags.findLast((flag) => flag.name === wanted)?.value;
  const words = execForm(instruction.rest) ?? rawWords(instruction.rest, options.plan.escape);
  if (words.length < 2) throw dockerfileError(line, `${name} needs a source and a target`);
  if (words.length > MOST_SOURCES)
    throw dockerfileError(line, `${name} has more than ${MOST_SOURCES} sources`);

  function wantedOf(state: StageState): Wanted {
    const expand = expanderOf(instruction, options, state);
    const value = variableOf(state);
    const matching = matchingBudget();
    const documents = heredocs.map((each) => ({
      name: each.name,
      text: each.expands
        ? said(line, () =>
            expandText(each.content, {
              value,
              escape: options.plan.escape,
              matching,
            }),
          )
        : each.content,
    }));
    const isDocument = (word: string) => /^\d*<<-?/.test(word) && heredocs.length > 0;
    const sources = words
      .slice(0, -1)
      .filter((word) => !isDocument(word))
      .map(expand);
    const written = expand(words.at(-1)!);
    if (sources.some((source) => source.length > LONGEST_SOURCE))
      throw dockerfileError(line, `a source of ${name} is longer than ${LONGEST_SOURCE} characters`);
    const remote = sources.find((source) => REMOTE.test(source));
    if (remote !== undefined)
      throw dockerfileError(
        line,
        `${name} does not fetch "${remote.slice(0, 200)}"`,
        'fetch it with RUN, such as RUN curl -fsSLO, which the network policy of the build applies to',
      );
    const endsInDirectory =
      written.endsWith('/') ||
      written === '.' ||
      written.endsWith('/.') ||
      sources.length + documents.length > 1;
    const [chown, chmod, from] = ['chown', 'chmod', 'from'].map((each) => {
      const value = flagOf(each);
      return value === undefined ? undefined : expand(value);
    });
    if (chmod !== undefined && !/^[0-7]{3,4}$/.test(chmod))
      throw dockerfileError(line, `--chmod is a number such as 755, not "${chmod.slice(0, 20)}"`);
    return {
      sources,
      target: within(state, written).replace(/\/$/, '') + (endsInDirectory ? '/' : ''),
      heredocs: documents,
      ...(chown !== undefined && chown !== '' && { chown }),
      ...(chmod !== undefined && { mode: Number.parseInt(chmod, 8) }),
      ...(from !== undefined && { from }),
    };
  }

  async function fromContext({ sources }: Wanted): Promise<Source[]> {
    if (sources.length === 0) return [];
    const context = await options.sources.context();
    const found: Source[] = [];
    for (const source of sources)
      for (const entry of await contextMatches(context, source)) {
        const packing = name === 'ADD' && entry.type === 'file' ? await packingOf(entry) : undefined;
        found.push(packing ? archiveSource(entry, packing, source) : contextSource(context, entry, source));
      }
    return found;
  }

  return {
    shown: shownOf(instruction),
    touches: true,
    async key(state) {
      const wanted = wantedOf(await state());
      if (wanted.from !== undefined)
        return { ...wanted, stage: (await options.sources.stage(wanted.from)).key };
      if (wanted.sources.length === 0) return wanted;
      const context = await options.sources.context();
      const contents: string[] = [];
      for (const source of wanted.sources)
        contents.push(await contentDigest(context, await contextMatches(context, source)));
      return { ...wanted, contents };
    },
    async run(state, { guest: enter, signal }) {
      const wanted = wantedOf(state);
      const documents = wanted.heredocs.map((each) => textSource(each.name, each.text));
      const found: Source[] = [...documents];
      if (wanted.from === undefined) found.push(...(await fromContext(wanted)));
      else {
        const source = await options.sources.guestOf(await options.sources.stage(wanted.from));
        for (const path of wanted.sources) found.push(...(await sandboxSources(source, path, signal)));
      }
      const guest = await enter();
      const owner =
        wanted.chown === undefined ? undefined : await ownerOf(guest.files('root'), wanted.chown, signal);
      await placeSources(found, {
        guest,
        target: wanted.target,
        signal,
        ...(owner && { owner }),
        ...(wanted.mode !== undefined && { mode: wanted.mode }),
      });
      return state;
    },
  };
}
