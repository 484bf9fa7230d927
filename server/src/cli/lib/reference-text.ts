import { loadProgram } from '../program.ts';
import { cliReference } from './reference.ts';

/** The whole reference. It does not depend on the terminal's width or on the environment. */
export async function referenceText(): Promise<string> {
  const not = () => Promise.reject(new Error('Not while the reference is written'));
  const cluster = { clusterBackends: ['kubernetes-job', 'agent-sandbox'], declarationsOf: not, toYaml: not };
  const program = await loadProgram({
    entry: '',
    openBackend: not,
    surveyBackend: not,
    unwrittenFiles: not,
    asPlatform: not,
    ...cluster,
  });
  const configure = { helpWidth: 120 };
  program.configureHelp(configure);
  for (const command of program.commands.flatMap((verb) => [verb, ...verb.commands]))
    command.configureHelp(configure);
  return cliReference(program);
}
