import { loadProgram } from './program.ts';
import { cliReference } from './reference.ts';

/** The whole reference. The width of no terminal, and nobody's environment, has a part in it. */
export async function referenceText(backends: readonly string[]): Promise<string> {
  const program = await loadProgram({
    backends,
    entry: '',
    surveyBackend: () => Promise.reject(new Error('Not while the reference is written')),
    clusterBackends: backends.filter((name) => name.startsWith('kubernetes') || name === 'agent-sandbox'),
    declarationsOf: () => Promise.reject(new Error('Not while the reference is written')),
    toYaml: () => Promise.reject(new Error('Not while the reference is written')),
    openBackend: () => Promise.reject(new Error('Not while the reference is written')),
  });
  const configure = { helpWidth: 120 };
  program.configureHelp(configure);
  for (const command of program.commands.flatMap((verb) => [verb, ...verb.commands])) command.configureHelp(configure);
  return cliReference(program);
}
