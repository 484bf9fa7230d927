import { SandboxProviderError, SandboxWorkspaceReadNotFoundError } from '@openai/agents-core/sandbox';
import { CayError } from '@cay/sdk';

/** Failures of Cay as the framework has them. */
export async function asProviderError<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof CayError)) throw error;
    throw new SandboxProviderError(
      `Cannot ${what}: ${error.message}${error.hint ? ` (${error.hint})` : ''}`,
      {
        provider: 'cay',
        code: error.code,
      },
    );
  }
}

/** The same for files: one that is not there has a class of its own. */
export async function asFileError<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof CayError && error.code === 'not_found')
      throw new SandboxWorkspaceReadNotFoundError(`Sandbox path not found: ${path}`, {
        provider: 'cay',
        path,
      });
    return asProviderError(`use "${path}"`, () => Promise.reject(error));
  }
}
