import type { Reporter, TestModule } from 'vitest/node';

/**
 * Lists the cases that passed only when they were run again. Each of them is a bug that has not been mended.
 */
export class SecondAttempts implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const flaky = modules.flatMap((module) =>
      [...module.children.allTests('passed')]
        .filter((test) => test.diagnostic()?.flaky)
        .map((test) => `  ${module.relativeModuleId} > ${test.fullName}`),
    );
    if (flaky.length > 0)
      console.log(`FLAKY: ${flaky.length} passed at the second attempt\n${flaky.join('\n')}`);
  }
}
