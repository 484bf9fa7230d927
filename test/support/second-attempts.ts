import type { Reporter, TestCase, TestModule } from 'vitest/node';

/**
 * Lists the cases that passed only when they were run again, with what failed at first. Each of them is a bug
 * that has not been mended.
 */
export class SecondAttempts implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const flaky = modules.flatMap((module) =>
      [...module.children.allTests('passed')]
        .filter((test) => test.diagnostic()?.flaky)
        .map((test) => `  ${module.relativeModuleId} > ${test.fullName}\n    ${reasonOf(test)}`),
    );
    if (flaky.length > 0)
      console.log(`FLAKY: ${flaky.length} passed at the second attempt\n${flaky.join('\n')}`);
  }
}

/** The first line of the first failure, which the result of a case that passes later keeps. */
function reasonOf(test: TestCase): string {
  const [message] = (test.result().errors?.[0]?.message ?? 'without a message').split('\n');
  return message!.slice(0, 300);
}
